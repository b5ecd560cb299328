"""The configuration of every Spark session and server of the platform."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cdc_platform.errors import JarsUnavailable
from cdc_platform.lake.catalog.lake_settings import (
    CATALOG,
    HIDDEN_NAMES,
    LakeSettings,
    holds_secret,
    is_secret,
)
from cdc_platform.spark.session.class_archive import archive_options
from cdc_platform.spark.session.collector import collector_option
from cdc_platform.spark.session.connect_token import with_token
from cdc_platform.spark.session.spark_settings import POSTGRESQL_DRIVER, SparkSettings

RUNTIME: Final = "org.apache.iceberg:iceberg-spark-runtime"
LOG4J: Final = Path(__file__).with_name("log4j2.properties")

CATALOGS: Final = "spark.sql.catalog."
CATALOG_PREFIX: Final = f"{CATALOGS}{CATALOG}"
EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"

SESSION: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Values of the source stand as literals in SQL: what looks like a variable in them is text.
    "spark.sql.variable.substitute": "false",
    "spark.sql.shuffle.partitions": "4",
    # One task does what is little; what takes seconds is worth a task for every core.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16MB",
    # Net changes are broadcast to the table that they are merged into, whatever their size up to this one: a
    # MERGE takes no hint, and the alternative moves the whole table.
    "spark.sql.autoBroadcastJoinThreshold": "256MB",
    # Persisted net changes live for a second: compressing it costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}
"""Settings that each session may set for itself, on a server as well."""

PROCESS: Final = {
    "spark.app.name": "cdc_platform",
    "spark.sql.extensions": EXTENSIONS,
    # Spark would get the line of this code that made each expression, in several messages apiece.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # With its UI off, Spark still keeps the plans and metrics of a thousand past queries on the heap.
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    # Spark's own expression leaves out some names under which catalogs take credentials.
    "spark.redaction.regex": HIDDEN_NAMES,
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    # Small queries are interpreted, so few shapes are left to compile; but the bounds of a cycle are
    # literals in their code, so that a check compiles them each time, and each entry holds more than 20 KB.
    "spark.sql.codegen.cache.maxEntries": "200",
    "spark.cleaner.periodicGC.interval": "10min",
    # A broadcast table takes a page, however small it is, and lives until Java and Python have collected
    # what refers to it: pages of 32 MiB, the default of this heap, would take hundreds of MiB.
    "spark.buffer.pageSize": "2m",
}
"""Settings with which a Spark process is started."""

LOOPBACK: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Other users of the machine reach loopback; Spark makes the secret of a local master itself.
    "spark.authenticate": "true",
}
"""Of a driver that has no workers on other machines."""

HARMLESS: Final = re.compile(
    rf"spark\.(?:master|app\.name|authenticate|ui\.enabled|connect\.grpc\..*|sql\.(?!catalog\.(?!{CATALOG}$)).*"
    r"|(?:driver|executor)\.(?:cores|memory|memoryOverhead|host|port|instances))"
)
"""Settings that hold no secret, and that a session which runs already may take."""


def spark_config(spark: SparkSettings, lake: LakeSettings) -> dict[str, str]:
    """Return the settings that a session starts with; a remote one takes those that a session may set.

    Of a session of our own, what may be a secret is not among them, see `launch_secrets` and
    `session_secrets`: Spark is started with its settings on a command line, which every user of the machine
    can read.
    """
    if spark.remote is not None:
        return {"spark.remote": with_token(spark.remote), **SESSION, **spark.conf}
    conf = {
        "spark.master": spark.master,
        "spark.driver.memory": spark.driver_memory,
        "spark.driver.extraJavaOptions": _java_options(spark),
        # Spark's workers would otherwise run the first python3 of the PATH.
        "spark.pyspark.python": sys.executable,
        **PROCESS,
        **(LOOPBACK if spark.is_local else {}),
        **SESSION,
        **_jars(spark, lake),
        **_catalog(lake),
        **spark.conf,
    }
    # What is on the command line would win.
    return {name: value for name, value in conf.items() if name not in launch_secrets(spark, lake)}


def _java_options(spark: SparkSettings) -> str:
    archive = archive_options() if spark.class_archive else ""
    options = (f"-Dlog4j2.configurationFile={LOG4J.as_uri()}", collector_option(spark), archive)
    return " ".join(option for option in options if option)


def launch_secrets(spark: SparkSettings, lake: LakeSettings) -> dict[str, str]:
    """Return what a process of our own is started with besides, by a file that only we may read.

    It is what a catalog or `spark.conf` has been given and is not known to be harmless.
    Spark's event log hides what a process is started with, but not what a session is configured with later.
    """
    if spark.remote is not None:
        return {}
    catalog = {name: value for name, value in lake.spark_properties().items() if is_secret(name, value)}
    own = {name: value for name, value in spark.conf.items() if not _is_harmless(name, value)}
    return {**_prefixed(catalog), **own}


def _is_harmless(name: str, value: str) -> bool:
    return HARMLESS.fullmatch(name) is not None and not holds_secret(name, value)


def session_secrets(spark: SparkSettings, lake: LakeSettings) -> dict[str, str]:
    """Return a session's properties before it uses the lake: others may have started its process."""
    secrets = launch_secrets(spark, lake)
    return {name: value for name, value in secrets.items() if name.startswith(CATALOGS)}


def _catalog(lake: LakeSettings) -> dict[str, str]:
    return {
        CATALOG_PREFIX: "org.apache.iceberg.spark.SparkCatalog",
        # Iceberg's Spark catalog would otherwise hide what pyiceberg has committed.
        f"{CATALOG_PREFIX}.cache-enabled": "false",
        **_prefixed(lake.spark_properties()),
    }


def _prefixed(properties: Mapping[str, str]) -> dict[str, str]:
    return {f"{CATALOG_PREFIX}.{key}": value for key, value in properties.items()}


def _jars(spark: SparkSettings, lake: LakeSettings) -> dict[str, str]:
    if spark.jars_folder is not None:
        return {"spark.jars": ",".join(list_jars(spark.jars_folder))}
    packages = list(spark.packages)
    if lake.spark_properties().get("uri", "").startswith("jdbc:postgresql"):
        packages.append(POSTGRESQL_DRIVER)
    packages += _store_packages(packages, lake)
    return {"spark.jars.packages": ",".join(packages)}


def _store_packages(packages: Sequence[str], lake: LakeSettings) -> list[str]:
    """Return the bundle of the lake's object store, of the version of Iceberg's runtime among packages."""
    runtimes = [package for package in packages if package.startswith(RUNTIME)]
    if lake.store is None or not runtimes or any(f":{lake.store.bundle}:" in package for package in packages):
        return []
    return [f"org.apache.iceberg:{lake.store.bundle}:{runtimes[0].rpartition(':')[2]}"]


def list_jars(folder: str) -> list[str]:
    """Return the jars of a local folder, sorted.

    Raises:
        JarsUnavailable: the folder holds no jar.
    """
    jars = sorted(str(jar) for jar in Path(folder).expanduser().glob("*.jar"))
    if not jars:
        raise JarsUnavailable(
            f"No jar in the folder of the setting `spark.jars_folder`: {folder}. "
            "Put Iceberg's Spark runtime and the catalog's JDBC driver there, "
            "or remove the setting to fetch them from Maven Central."
        )
    return jars
