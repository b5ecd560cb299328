"""Catalogs that are services of their own: a private PostgreSQL, and Iceberg's REST test server."""

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

REST_SERVER: Final = "org.apache.iceberg.rest.RESTCatalogServer"
REST_JARS: Final = Path(__file__).with_name("rest_catalog.xml")
DEBIAN_PROGRAMS: Final = "usr/lib/postgresql/*/bin/initdb"
UNPRIVILEGED: Final = "nobody"
"""PostgreSQL refuses to run as root; this user is on every Linux."""


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def postgresql_programs() -> Path | None:
    """Return the folder of PostgreSQL's programs: on the PATH, or the newest of Debian's."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    return max((path.parent for path in Path("/").glob(DEBIAN_PROGRAMS)), default=None)


@contextmanager
def postgresql(programs: Path, folder: Path) -> Iterator[str]:
    """Run a private cluster in a folder, and give the address of its only database for SQLAlchemy.

    The folder's parent must be for this alone: both go to another user where we are root.
    """
    data, port = folder / "data", free_port()
    data.mkdir(parents=True)
    user = _own(folder)
    _run([str(programs / "initdb"), "-D", str(data), "-U", "lake", "--auth=trust", "--no-sync"], user)
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={data} -c fsync=off"
    control = [str(programs / "pg_ctl"), "-D", str(data)]
    _run([*control, "-w", "-o", options, "-l", str(folder / "log"), "start"], user)
    try:
        yield f"postgresql+psycopg2://lake@127.0.0.1:{port}/postgres"
    finally:
        _run([*control, "-m", "immediate", "stop"], user)


def _own(folder: Path) -> str | None:
    """Give a folder and the way into it to an unprivileged user if we are root; return that user."""
    if os.geteuid() != 0:
        return None
    for path in (folder.parent, folder, *folder.rglob("*")):
        shutil.chown(path, UNPRIVILEGED)
    return UNPRIVILEGED


def _run(command: Sequence[str], user: str | None) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=user, timeout=60, cwd="/")


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """Run Iceberg's REST test server over a folder, and give its address."""
    port, jars = free_port(), fetch_rest_jars(folder / "jars")
    environment = os.environ | {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": (folder / "warehouse").as_uri(),
        "CATALOG_URI": f"jdbc:sqlite:{folder}/rest.db?busy_timeout=60000",
        "CATALOG_CLIENTS": "1",
    }
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            ["java", "-cp", os.pathsep.join(map(str, jars)), REST_SERVER],
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        _wait(f"http://127.0.0.1:{port}/v1/config", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


def fetch_rest_jars(folder: Path) -> list[Path]:
    """Return the server's jars; those that Spark lacks are fetched, and kept in Ivy's cache."""
    spark_jars = Path(pyspark.__file__).parent / "jars"
    ivy = next(spark_jars.glob("ivy-*.jar"))
    pattern = f"{folder}/[artifact]-[revision](-[classifier]).[ext]"
    command = ["java", "-cp", str(ivy), "org.apache.ivy.Main", "-ivy", str(REST_JARS), "-retrieve", pattern]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=300)
    return [*sorted(folder.glob("*.jar")), *spark_jars.glob("hadoop-client-*.jar")]


def _wait(address: str, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()  # noqa: S310  our own server
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise TimeoutError(address)
