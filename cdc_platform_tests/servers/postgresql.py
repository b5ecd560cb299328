"""A private PostgreSQL: a cluster in a separate folder, on an unused port."""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg2
import pytest

from cdc_platform_tests.programs import free_port

DEBIAN_PROGRAMS: Final = "usr/lib/postgresql/*/bin/initdb"
UNPRIVILEGED: Final = "nobody"
"""PostgreSQL refuses to run as root; this user is on every Linux."""
SUPERUSER: Final = "lake"
LOGICAL: Final = {
    "wal_level": "logical",
    "max_wal_senders": "12",
    "max_replication_slots": "12",
    "max_prepared_transactions": "4",
    "max_connections": "40",
}
"""Settings of a server whose changes can be read."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Args:
        programs: folder of PostgreSQL's programs.
        folder: folder of the cluster; its parent is the server's alone.
        port: port on loopback.
        user: the operating system's user that runs it; None where we are not root.
    """

    programs: Path
    folder: Path
    port: int
    user: str | None

    def address(self, *, with_user: bool = True) -> str:
        """Return the address of the database `postgres` for SQLAlchemy."""
        return f"postgresql+psycopg2://{f'{SUPERUSER}@' if with_user else ''}127.0.0.1:{self.port}/postgres"

    def start(self, settings: dict[str, str] | None = None) -> None:
        """Start the server and wait until it answers."""
        data = self.folder / "data"
        parameters = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(data),
            "fsync": "off",
        } | (settings or {})
        options = " ".join([f"-p {self.port}", *(f"-c {name}={value}" for name, value in parameters.items())])
        self._control("-w", "-o", options, "-l", str(self.folder / "log"), "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server."""
        self._control("-m", mode, "stop")

    def restart(self) -> None:
        """Stop the server in the middle of what it does, and start it."""
        self.stop()
        self.start()

    def lock(self, table: str, seconds: float) -> None:
        """Lock a table against everybody for some seconds, once the transactions that use it are over."""
        threading.Thread(target=self._lock, args=(table, seconds), daemon=True).start()

    def _lock(self, table: str, seconds: float) -> None:
        # The server may be stopped meanwhile.
        with suppress(psycopg2.Error), psycopg2.connect(self.address().replace("+psycopg2", "")) as locker:
            locker.cursor().execute(
                f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({seconds})"
            )

    def _control(self, *arguments: str) -> None:
        run([str(self.programs / "pg_ctl"), "-D", str(self.folder / "data"), *arguments], self.user)


def postgresql_programs() -> Path | None:
    """Return the folder of PostgreSQL's programs: on the PATH, or the newest of Debian's."""
    program = shutil.which("initdb")
    if program is not None:
        return Path(program).resolve().parent
    return max((path.parent for path in Path("/").glob(DEBIAN_PROGRAMS)), default=None)


def require_postgresql() -> Path:
    """Return the folder of PostgreSQL's programs: skip without them on a laptop, fail in CI."""
    programs = postgresql_programs()
    if programs is None and os.environ.get("CI") != "true":
        pytest.skip("PostgreSQL is not installed")
    assert programs is not None, "PostgreSQL is not installed"
    return programs


@contextmanager
def cluster(
    programs: Path, folder: Path, password: str | None = None, settings: dict[str, str] | None = None
) -> Iterator[Cluster]:
    """Run a private cluster in a folder.

    The folder's parent must be for this alone: both go to another user where we are root. With a password
    the server wants it from everybody.
    """
    data, password_file = folder / "data", folder / "password"
    data.mkdir(parents=True)
    if password is not None:
        password_file.write_text(password, encoding="utf-8")
    user = _own(folder)
    login = ["--auth=trust"] if password is None else ["--auth=scram-sha-256", f"--pwfile={password_file}"]
    run([str(programs / "initdb"), "-D", str(data), "-U", SUPERUSER, *login, "--no-sync"], user)
    password_file.unlink(missing_ok=True)
    server = Cluster(programs, folder, free_port(), user)
    server.start(settings)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def postgresql(programs: Path, folder: Path, password: str | None = None) -> Iterator[str]:
    """Run a private cluster, and give the address of its only database for SQLAlchemy.

    Where the server wants a password the address names no user: that is `lake`.
    """
    with cluster(programs, folder, password) as server:
        yield server.address(with_user=password is None)


def _own(folder: Path) -> str | None:
    """Give a folder and the way into it to an unprivileged user if we are root; return that user."""
    if os.geteuid() != 0:
        return None
    for path in (folder.parent, folder, *folder.rglob("*")):
        shutil.chown(path, UNPRIVILEGED)
    return UNPRIVILEGED


def run(command: Sequence[str], user: str | None) -> None:
    """Run one of PostgreSQL's programs, which writes its errors to the server's log."""
    # With `user=`, Python forks instead of calling vfork. Then handlers of gRPC run, and may abort the child.
    as_user = ["setpriv", f"--reuid={user}", "--keep-groups", *command] if user is not None else command
    subprocess.run(as_user, check=True, stdout=subprocess.DEVNULL, timeout=300, cwd="/")
