"""The token that a Spark Connect server of this machine asks its clients for: any user can reach loopback."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from cdc_platform.private_files import open_private
from cdc_platform.spark.session.class_archive import cache_folder

VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""Environment variable by which Spark's servers and clients take a token."""
LOOPBACK: Final = ("127.0.0.1", "localhost")
LOCAL: Final = "localhost"
"""Spark's client sends a token without TLS to a host of this name alone."""


def token_file(port: int) -> Path:
    """Return the file in which clients of this user find the token of the server at a port of loopback."""
    return cache_folder() / f"spark-connect-{port}.token"


def choose_token(remote: str | None = None) -> str:
    """Return the token of a new server: that of its address or of the environment, else a random one."""
    token = _parameters(remote).get("token") if remote is not None else None
    return token or os.environ.get(VARIABLE) or secrets.token_urlsafe(32)


def write_token(port: int, token: str) -> Path:
    """Write the token of the server at a port where clients of this user find it, and nobody else does."""
    file = token_file(port)
    file.parent.mkdir(parents=True, exist_ok=True)
    with open_private(file, "wb") as opened:
        opened.write(token.encode())
    return file


def with_token(remote: str) -> str:
    """Return the address of a server with its token: its own, the environment's, or that of this machine.

    One without a token, and one of another machine, stays as it is.
    """
    address, parameters = urlsplit(remote.partition(";")[0]), _parameters(remote)
    if address.hostname not in LOOPBACK or address.port is None or "use_ssl" in parameters:
        return remote
    token = parameters.pop("token", None) or os.environ.get(VARIABLE) or _read_token(address.port)
    if token is None:
        return remote
    text = "".join(
        f";{name}={quote(value, safe='')}" for name, value in {**parameters, "token": token}.items()
    )
    return f"sc://{LOCAL}:{address.port}/{text}"


def _read_token(port: int) -> str | None:
    with suppress(OSError, RuntimeError):
        return token_file(port).read_text(encoding="utf-8") or None
    return None


def _parameters(remote: str) -> dict[str, str]:
    return dict(parse_qsl(remote.partition(";")[2], separator=";"))
