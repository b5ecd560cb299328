"""Spark's side of crash points: a catalog in Java that asks this process before and after each effect."""

import atexit
import os
import shutil
import socketserver
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from threading import Thread
from typing import Final

import pyspark
import pytest
from pyspark.sql import SparkSession

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.launch.config import CATALOG_PREFIX
from cdc_platform_tests.java_options import SHARED, SHORT_LIVED, VARIABLE
from cdc_platform_tests.support.crash_points.points import POINTS, EffectFailure, EffectKind, ProcessDeath

CATALOG_CLASS: Final = "MortalCatalog"
SOURCE: Final = Path(__file__).with_name(f"{CATALOG_CLASS}.java")


def require_javac() -> None:
    """Skip a test without a Java compiler on a laptop, and fail it in CI."""
    if shutil.which("javac") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("javac is missing; install a JDK of Java 17")
        pytest.skip("Spark's catalog with crash points must be compiled, and javac is missing")


def compile_quickly() -> None:
    """Give the Spark that starts next the options of the one that tests share.

    It recovers hundreds of times from much the same, and would otherwise compile for half of its time.
    """
    os.environ.setdefault(VARIABLE, f"{SHORT_LIVED} {SHARED}")


@cache
def build_jar() -> Path:
    """Compile the catalog into a jar that lives as long as this process, and return it.

    Raises:
        CalledProcessError: the compiler refuses it.
    """
    folder = Path(mkdtemp(prefix="crash-points-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    jars = [*Path(pyspark.__file__).parent.glob("jars/*.jar")]
    jars += [*Path.home().glob(".ivy2*/jars/org.apache.iceberg_iceberg-spark-runtime*.jar")]
    path = os.pathsep.join(map(str, jars))
    options = (f"-J{option}" for option in SHORT_LIVED.split())
    subprocess.run(["javac", *options, "-nowarn", "-cp", path, "-d", folder / "classes", SOURCE], check=True)
    archive = shutil.make_archive(str(folder / "crash-points"), "zip", folder / "classes")
    return Path(archive).rename(folder / "crash-points.jar")


class _Answers(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        """Answer one question: a moment, the kind or the number of an effect, and what it is had on."""
        moment, detail, target = self.rfile.readline().decode().rstrip("\n").split("\t")
        try:
            answer = _answer(moment, detail, target)
        except ProcessDeath:
            answer = "die"
        except EffectFailure as error:
            answer = f"fail {error.failure.value}"
        self.wfile.write(answer.encode())


def _answer(moment: str, detail: str, target: str) -> str:
    if moment == "before":
        return str(POINTS.before(EffectKind(detail), target))
    if moment == "within":
        return "tear" if POINTS.is_torn(int(detail)) else "go"
    POINTS.after(int(detail))
    return "go"


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


@contextmanager
def mortal_session(spark: SparkSession, lake: LakeSettings, folder: Path) -> Iterator[SparkSession]:
    """Yield a session of the same Spark whose catalog is that of a lake, with crash points.

    Args:
        spark: a running session.
        lake: the lake.
        folder: for the socket; its path is short, as sockets want it.
    """
    address = folder / "points"
    session = spark.newSession()
    session.sql(f"ADD JAR '{build_jar()}'")
    for name, value in lake.spark_properties().items():
        session.conf.set(f"{CATALOG_PREFIX}.{name}", value)
    session.conf.set(CATALOG_PREFIX, CATALOG_CLASS)
    session.conf.set(f"{CATALOG_PREFIX}.crash-points", str(address))
    with _Server(str(address), _Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield session
        finally:
            server.shutdown()
