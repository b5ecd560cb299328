"""Catalogs that are separate services: Iceberg's REST test server."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway

from cdc_platform_tests.java_options import SHORT_LIVED

SPARK_JARS: Final = Path(pyspark.__file__).parent / "jars"
REST_JARS: Final = Path(__file__).with_name("rest_catalog.xml")
S3_JARS: Final = Path(__file__).with_name("rest_catalog_s3.xml")
S3_FILES: Final = "org.apache.iceberg.aws.s3.S3FileIO"
NO_STORAGE: Final[Mapping[str, str]] = {}


@contextmanager
def rest_catalog(folder: Path, s3: Mapping[str, str] = NO_STORAGE) -> Iterator[str]:
    """Run Iceberg's REST test catalog over a folder, and give its address.

    The server that Iceberg makes of it listens on every interface; ours is the same on loopback only.

    Args:
        folder: where its tables, its database and its log are.
        s3: properties of an object store, among them `warehouse`, if the tables are there instead.
    """
    files = (REST_JARS, S3_JARS) if s3 else (REST_JARS,)
    jars = [*fetch_rest_jars(files), next(SPARK_JARS.glob("py4j-*.jar"))]
    with _java_gateway(jars, folder / "log") as java:
        properties = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{folder}/rest.db?busy_timeout=60000",
            "warehouse": (folder / "warehouse").as_uri(),
            "jdbc.schema-version": "V1",
            "clients": "1",
            **({"io-impl": S3_FILES, **s3} if s3 else {}),
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


@cache
def fetch_rest_jars(files: tuple[Path, ...] = (REST_JARS,)) -> list[Path]:
    """Return the server's jars; those that Spark lacks are fetched, and kept in Ivy's cache."""
    ivy, jars = next(SPARK_JARS.glob("ivy-*.jar")), list[Path]()
    command = ["java", *SHORT_LIVED.split(), "-cp", str(ivy), "org.apache.ivy.Main"]
    with TemporaryDirectory() as folder:
        paths = Path(folder) / "paths"
        for file in files:
            fetch = [*command, "-ivy", str(file), "-cachepath", str(paths)]
            subprocess.run(fetch, check=True, stdout=subprocess.DEVNULL, timeout=300)
            jars += map(Path, paths.read_text("utf-8").strip().split(os.pathsep))
    return [*jars, *SPARK_JARS.glob("hadoop-client-*.jar")]
