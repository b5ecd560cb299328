"""Token that a local Spark Connect server requires from clients, since any user can reach loopback."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from cdc_platform.java.class_archive import cache_folder
from cdc_platform.private_files import open_private

VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""Environment variable with the token for Spark's servers and clients."""
CLIENT_VARIABLE: Final = "SPARK_REMOTE"
"""Environment variable of Spark's clients with the address of their server."""
LOOPBACK: Final = ("127.0.0.1", "localhost")
LOCAL: Final = "localhost"
"""The only host name to which Spark's client sends a token without TLS."""


def token_file(port: int) -> Path:
    """Return the file with the token of the server at a port of loopback, for clients of the same user."""
    return cache_folder() / f"spark-connect-{port}.token"


def choose_token(remote: str | None = None) -> str:
    """Return the token of a new server: that of its address or the environment, else a random one."""
    token = _parameters(remote).get("token") if remote is not None else None
    return token or os.environ.get(VARIABLE) or secrets.token_urlsafe(32)


def write_token(port: int, token: str) -> Path:
    """Write the token of the server at a port to a file that only this user can read."""
    file = token_file(port)
    file.parent.mkdir(parents=True, exist_ok=True)
    with open_private(file, "wb") as stream:
        stream.write(token.encode())
    return file


def with_token(remote: str) -> str:
    """Return the address of a server with its token: from the address, the environment, or this machine.

    Addresses without a token, or on other machines, stay unchanged.
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
