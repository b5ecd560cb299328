"""Catalogs that are services of their own: a private PostgreSQL, and Iceberg's REST test server."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway

from cdc_platform_tests.programs import free_port

SPARK_JARS: Final = Path(pyspark.__file__).parent / "jars"
REST_JARS: Final = Path(__file__).with_name("rest_catalog.xml")
DEBIAN_PROGRAMS: Final = "usr/lib/postgresql/*/bin/initdb"
UNPRIVILEGED: Final = "nobody"
"""PostgreSQL refuses to run as root; this user is on every Linux."""


def postgresql_programs() -> Path | None:
    """Return the folder of PostgreSQL's programs: on the PATH, or the newest of Debian's."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    return max((path.parent for path in Path("/").glob(DEBIAN_PROGRAMS)), default=None)


@contextmanager
def postgresql(programs: Path, folder: Path, password: str | None = None) -> Iterator[str]:
    """Run a private cluster in a folder, and give the address of its only database for SQLAlchemy.

    The folder's parent must be for this alone: both go to another user where we are root. With a password
    the server wants it, and the address names no user: that is `lake`.
    """
    data, port, password_file = folder / "data", free_port(), folder / "password"
    data.mkdir(parents=True)
    if password is not None:
        password_file.write_text(password, encoding="utf-8")
    user = _own(folder)
    login = ["--auth=trust"] if password is None else ["--auth=scram-sha-256", f"--pwfile={password_file}"]
    _run([str(programs / "initdb"), "-D", str(data), "-U", "lake", *login, "--no-sync"], user)
    password_file.unlink(missing_ok=True)
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={data} -c fsync=off"
    control = [str(programs / "pg_ctl"), "-D", str(data)]
    _run([*control, "-w", "-t", "240", "-o", options, "-l", str(folder / "log"), "start"], user)
    try:
        yield f"postgresql+psycopg2://{'lake@' if password is None else ''}127.0.0.1:{port}/postgres"
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
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=user, timeout=300, cwd="/")


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """Run Iceberg's REST test catalog over a folder, and give its address.

    The server that Iceberg makes of it listens on every interface; ours is the same on loopback only.
    """
    jars = [*fetch_rest_jars(folder / "jars"), next(SPARK_JARS.glob("py4j-*.jar"))]
    with _java_gateway(jars, folder / "log") as java:
        properties = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{folder}/rest.db?busy_timeout=60000",
            "warehouse": (folder / "warehouse").as_uri(),
            "jdbc.schema-version": "V1",
            "clients": "1",
        }
        hadoop = java.org.apache.hadoop.conf.Configuration()
        catalog = java.org.apache.iceberg.CatalogUtil.buildIcebergCatalog("rest", properties, hadoop)
        rest = java.org.apache.iceberg.rest
        servlet = rest.RESTCatalogServlet(rest.RESTCatalogAdapter(catalog))
        jetty = java.org.eclipse.jetty
        context = jetty.ee10.servlet.ServletContextHandler()
        context.addServlet(jetty.ee10.servlet.ServletHolder(servlet), "/*")
        server = jetty.server.Server(java.java.net.InetSocketAddress("127.0.0.1", 0))
        server.setHandler(context)
        server.start()
        yield str(server.getURI().toString()).rstrip("/")
        server.stop()


@contextmanager
def _java_gateway(jars: Sequence[Path], log: Path) -> Iterator[Any]:
    """Yield the packages of a JVM, which ends with the context."""
    command = [
        "java",
        "-cp",
        os.pathsep.join(map(str, jars)),
        "py4j.GatewayServer",
        "--die-on-broken-pipe",
        "0",
    ]
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
    assert process.stdin is not None
    assert process.stdout is not None
    parameters = GatewayParameters(
        port=int(process.stdout.readline()), auto_convert=True, enable_memory_management=False
    )
    gateway = JavaGateway(gateway_parameters=parameters)
    try:
        yield gateway.jvm
    finally:
        gateway.close()
        process.stdin.close()
        process.wait(120)
        process.stdout.close()


def fetch_rest_jars(folder: Path) -> list[Path]:
    """Return the server's jars; those that Spark lacks are fetched, and kept in Ivy's cache."""
    ivy = next(SPARK_JARS.glob("ivy-*.jar"))
    pattern = f"{folder}/[artifact]-[revision](-[classifier]).[ext]"
    command = ["java", "-cp", str(ivy), "org.apache.ivy.Main", "-ivy", str(REST_JARS), "-retrieve", pattern]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=300)
    return [*sorted(folder.glob("*.jar")), *SPARK_JARS.glob("hadoop-client-*.jar")]
