"""The token of a Spark Connect server on this machine is found only by the user who started it."""

import stat
from pathlib import Path

import pytest

from cdc_platform.spark.launch.connect_token import (
    VARIABLE,
    choose_token,
    token_file,
    with_token,
    write_token,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the tests their own cache, and no token in the environment."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)


def test_a_client_finds_the_token_that_the_server_left() -> None:
    """The address names the host that gets tokens without TLS, and keeps its other parameters."""
    assert with_token("sc://127.0.0.1:1/;x-id=7") == "sc://127.0.0.1:1/;x-id=7"
    token = choose_token()
    file = write_token(1, token)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file == token_file(1)
    assert f"sc://localhost:1/;x-id=7;token={token}" == with_token("sc://127.0.0.1:1/;x-id=7")
    assert with_token("sc://127.0.0.1:2") == "sc://127.0.0.1:2"
    assert token != choose_token()
    assert len(token) >= 32


def test_a_token_that_is_given_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address takes precedence, then the environment; an old file does not count."""
    write_token(1, "old")
    monkeypatch.setenv(VARIABLE, "of the environment")
    assert choose_token("sc://localhost:1") == "of the environment"
    assert with_token("sc://localhost:1") == "sc://localhost:1/;token=of%20the%20environment"
    assert choose_token("sc://localhost:1/;token=own") == "own"
    assert with_token("sc://localhost:1/;token=own") == "sc://localhost:1/;token=own"


@pytest.mark.parametrize(
    "remote", ["sc://spark:15002", "sc://spark:443/;token=a;x-id=1", "sc://localhost:15002/;use_ssl=true"]
)
def test_other_servers_get_no_token_of_this_machine(remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address of another machine, or with TLS, stays as it is."""
    monkeypatch.setenv(VARIABLE, "hush")
    write_token(15002, "hush")
    assert with_token(remote) == remote
