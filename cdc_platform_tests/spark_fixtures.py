"""One Spark session for the whole test run, on a lake in a temporary folder."""

import fcntl
import os
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.errors import JavaMissing
from cdc_platform.java.class_archive import is_complete
from cdc_platform.java.java_program import check_java
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.launch.jars import CLASS_PATH_SETTING, spark_archive, start_config
from cdc_platform.spark.launch.spark_settings import DEFAULT_PACKAGES, POSTGRESQL_DRIVER, SparkSettings
from cdc_platform.spark.session.session_settings import INTERPRETED, ONE_TASK, changed_settings
from cdc_platform_tests.java_options import SHARED, VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

TEST_SPARK = SparkSettings(
    driver_memory="3g",
    # Sessions of some tests have their catalog in PostgreSQL.
    packages=(*DEFAULT_PACKAGES, POSTGRESQL_DRIVER),
    conf={
        **INTERPRETED,
        **ONE_TASK,
        # As in conftest.py.
        "spark.sql.catalog.lake.jdbc.synchronous": "OFF",
    },
)


PREPARE: Final = """
from tempfile import TemporaryDirectory
from pyspark.sql import SparkSession
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.launch.jars import start_config
from cdc_platform_tests.spark_fixtures import TEST_SPARK

with TemporaryDirectory() as folder:
    conf = start_config(TEST_SPARK, LakeSettings(folder))
    spark = SparkSession.builder.config(map={**conf}).getOrCreate()
    spark.sql("CREATE NAMESPACE lake.first")
    version = "TBLPROPERTIES ('format-version' = '3')"
    spark.sql(f"CREATE TABLE lake.first.t (k INT, v STRING) USING iceberg {version}")
    rows = spark.range(9).selectExpr("CAST(id AS INT) AS k", "'a' AS v")
    rows.mapInArrow(lambda batches: batches, rows.schema).writeTo("lake.first.t").append()
    rows.where("k < 5").persist().createOrReplaceTempView("p")
    clauses = "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    spark.sql(f"MERGE INTO lake.first.t USING p ON t.k = p.k {clauses}")
    assert spark.table("lake.first.t").groupBy("v").count().collect() == [("a", 4)]
    spark.stop()
"""
"""Fetches Spark's packages, and leaves the archive of its classes for the processes of the tests."""


def require_java() -> None:
    """Skip where Spark cannot run on a laptop; fail in CI."""
    try:
        check_java()
    except JavaMissing as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))
    _prepare_spark()


@cache
def _prepare_spark() -> None:
    """Let one process do what Spark's first start has to: two would write the same files."""
    with (Path(gettempdir()) / f"cdc_platform_tests-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The first one fetches the jars, and leaves no archive yet.
        for _ in range(2):
            if not _is_prepared():
                # The Spark of a test reports what blocks it.
                subprocess.run([sys.executable, "-c", PREPARE], check=False, capture_output=True)


def _is_prepared() -> bool:
    """Return whether Spark's jars are there, and the archive of their classes."""
    jars = (f"{'{}_{}-{}'.format(*package.split(':'))}.jar" for package in TEST_SPARK.packages)
    has_jars = all(any(Path.home().glob(f".ivy2*/jars/{jar}")) for jar in jars)
    archive = spark_archive(shared_config("").get(CLASS_PATH_SETTING, ""))
    return has_jars and (archive is None or is_complete(archive))


def shared_config(lake: str) -> dict[str, str]:
    """Return the settings with which the Spark that tests share starts."""
    return start_config(TEST_SPARK, LakeSettings(lake))


@pytest.fixture
def many_tasks(spark: "SparkSession") -> "Iterator[None]":
    """Let exchanges of a test spread their rows over several tasks, as they do where there are many."""
    settings = {"spark.sql.shuffle.partitions": "3", "spark.sql.adaptive.enabled": "true"}
    with changed_settings(spark, settings):
        yield


@pytest.fixture(scope="session")
def session_lake(tmp_path_factory: pytest.TempPathFactory) -> LakeSettings:
    """The lake that the shared session reads and writes: tests keep apart by pipeline name."""
    folder = tmp_path_factory.mktemp("lakes") / "my läke"
    # Not every test begins with the step of a pipeline that makes it.
    folder.mkdir()
    return LakeSettings(path=str(folder))


@pytest.fixture(scope="session")
def spark(session_lake: LakeSettings) -> "Iterator[SparkSession]":
    """The one Spark session of the test run, with the catalog of `session_lake`."""
    require_java()
    from cdc_platform_tests.support.footprints.java_classes import keep_classes

    # Classic sessions read it from the environment when the JVM starts the first worker.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, f"{os.environ[VARIABLE]} {SHARED}")
        session = _start(shared_config(session_lake.path))
    keep_classes(session)
    # Otherwise Spark walks the stack of Java for each RDD and each job, to name it by the line that made it.
    for form in ("short", "long"):
        session.sparkContext.setLocalProperty(f"callSite.{form}", "tests")
    write_checksums(session, are_written=False)
    yield session
    session.stop()


def write_checksums(spark: "SparkSession", *, are_written: bool) -> None:
    """Let Hadoop write a file with checksums for each file of a lake in a folder, or the file alone.

    For each of them Hadoop starts a process to set its permissions, which takes more than to write it.
    """
    java: Any = spark._jvm  # noqa: SLF001  no setting does it
    conf: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001  Java's method wants what Spark itself uses
    files = java.org.apache.hadoop.fs.FileSystem.getLocal(conf)
    files.setWriteChecksum(are_written)
    files.setVerifyChecksum(are_written)


def _start(conf: "Mapping[str, str]") -> "SparkSession":
    """Start Spark; once more where its Java ends at once: half of a run's tests would fail with it."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config(map={**conf})
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        mine = {name: value for name, value in os.environ.items() if "SPARK" in name or "JAVA" in name}
        warnings.warn(f"Spark's Java ended at its start; its environment: {mine}", stacklevel=1)
        return builder.getOrCreate()
