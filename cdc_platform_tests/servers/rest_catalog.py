"""Catalogs that are separate services: Iceberg's REST test server."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway

from cdc_platform_tests.java_options import SHORT_LIVED

SPARK_JARS: Final = Path(pyspark.__file__).parent / "jars"
REST_JARS: Final = Path(__file__).with_name("rest_catalog.xml")


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
        *SHORT_LIVED.split(),
        "-cp",
        os.pathsep.join(map(str, jars)),
        "py4j.GatewayServer",
        "--die-on-broken-pipe",
        "0",
    ]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
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
    command = ["java", *SHORT_LIVED.split(), "-cp", str(ivy), "org.apache.ivy.Main"]
    command += ["-ivy", str(REST_JARS), "-retrieve", pattern]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=300)
    return [*sorted(folder.glob("*.jar")), *SPARK_JARS.glob("hadoop-client-*.jar")]
