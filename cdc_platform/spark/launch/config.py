"""Configuration of every Spark session and server of the platform."""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
from cdc_platform.spark.launch.connect_token import with_token
from cdc_platform.spark.launch.properties import SUBMIT_ARGUMENTS, conf_folder
from cdc_platform.spark.launch.spark_settings import POSTGRESQL_DRIVER, SparkSettings

JARS_SETTING: Final = "spark.jars"
PACKAGES_SETTING: Final = "spark.jars.packages"
COLLECTOR: Final = "-XX:+UseParallelGC"
"""Java's default, G1, also collects in threads of its own and makes each write of a reference more expensive:
it takes about a tenth more processor time for a large cycle."""

# A file with options is not inspected: it may choose a collector.
_ANY_COLLECTOR: Final = re.compile(r"-XX\\?:\+Use\w+GC\b|-XX\\?:(?:Flags|VMOptionsFile)=|(?<!\S)@\S")
_OF_OTHERS: Final = re.compile(r"^\s*(?:#|spark\.executor\.).*$", re.MULTILINE)
_VARIABLES: Final = (
    SUBMIT_ARGUMENTS,
    "SPARK_SUBMIT_OPTS",
    "SPARK_DAEMON_JAVA_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
)
_FILES: Final = ("spark-defaults.conf", "spark-env.sh", "java-opts")
_DEFAULT_OPTIONS: Final = "spark.driver.defaultJavaOptions"


def collector_option(spark: SparkSettings) -> str:
    """Return the option that chooses the collector; empty if the machine or a setting already chooses one.

    Java does not start with two of them.
    """
    return "" if any(map(_ANY_COLLECTOR.search, _other_options(spark))) else COLLECTOR


def _other_options(spark: SparkSettings) -> Iterator[str]:
    """Yield all texts, except the platform's own, from which Spark's launcher and Java take options."""
    yield spark.conf.get(_DEFAULT_OPTIONS, "")
    yield from (os.environ.get(name, "") for name in _VARIABLES)
    for name in _FILES:
        with suppress(OSError):
            yield _OF_OTHERS.sub("", (conf_folder() / name).read_text(errors="replace"))


RUNTIME: Final = "org.apache.iceberg:iceberg-spark-runtime"
LOG4J: Final = Path(__file__).with_name("log4j2.properties")

CATALOGS: Final = "spark.sql.catalog."
CATALOG_PREFIX: Final = f"{CATALOGS}{CATALOG}"
EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"

SESSION: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Values of the source are literals in SQL: anything that looks like a variable in them is text.
    "spark.sql.variable.substitute": "false",
    "spark.sql.shuffle.partitions": "4",
    # Small work is done in one task; work that takes seconds deserves a task for every core.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16MB",
    # Net changes up to this size are broadcast to the table that they are merged into: a MERGE accepts no
    # hint, and the alternative shuffles the whole table.
    "spark.sql.autoBroadcastJoinThreshold": "256MB",
    # Persisted net changes live for a second: compression costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}
"""Settings that each session may set for itself, even on a server."""

PROCESS: Final = {
    "spark.app.name": "cdc_platform",
    "spark.sql.extensions": EXTENSIONS,
    # Otherwise Spark sends the code line of each expression, in several messages each.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The text of each plan, for the UI, is a thirtieth of what Java does in small cycles.
    "spark.sql.ui.explainMode": "simple",
    # With its UI off, Spark still keeps the plans and metrics of a thousand past queries on the heap.
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    # Spark's own expression omits some names of catalogs' credentials.
    "spark.redaction.regex": HIDDEN_NAMES,
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    # Small queries are interpreted, so few shapes are compiled; but the bounds of a cycle are literals in
    # their code, so a check compiles them each time, and each entry holds more than 20 KB.
    "spark.sql.codegen.cache.maxEntries": "200",
    "spark.cleaner.periodicGC.interval": "10min",
    # A broadcast table takes at least a page until Java and Python have collected all references to it: pages
    # of 32 MiB, the default for this heap, would take hundreds of MiB.
    "spark.buffer.pageSize": "2m",
}
"""Settings for the start of a Spark process."""

LOOPBACK: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Other users of the machine can reach loopback; Spark creates the secret of a local master itself.
    "spark.authenticate": "true",
    # A machine that sleeps for two minutes, or a clock that is set ahead, is no lost executor: ten minutes
    # later Spark would end its process, since it did not accept its own heartbeats any more.
    "spark.storage.blockManagerHeartbeatTimeoutMs": "1000d",
    # Each stage and each scan of a table is a broadcast of some kilobytes, for which Spark allocates a whole
    # block: with the default of 4 MiB that is a third of all that Java allocates in small cycles.
    "spark.broadcast.blockSize": "256k",
}
"""Settings of a driver without workers on other machines."""

HARMLESS: Final = re.compile(
    rf"spark\.(?:master|app\.name|authenticate|ui\.enabled|connect\.grpc\..*|sql\.(?!catalog\.(?!{CATALOG}$)).*"
    r"|(?:driver|executor)\.(?:cores|memory|memoryOverhead|host|port|instances))"
)
"""Settings without secrets, which a running session may get."""


def spark_config(spark: SparkSettings, lake: LakeSettings) -> dict[str, str]:
    """Return the settings for the start of a session; a remote one gets those that a session may set.

    For the platform's own session, they exclude possible secrets, see `launch_secrets` and `session_secrets`:
    Spark gets these settings on a command line, which every user of the machine can read.
    """
    if spark.remote is not None:
        return {"spark.remote": with_token(spark.remote), **SESSION, **spark.conf}
    java_options = f"-Dlog4j2.configurationFile={LOG4J.as_uri()} {collector_option(spark)}"
    conf = {
        "spark.master": spark.master,
        "spark.driver.memory": spark.driver_memory,
        "spark.driver.extraJavaOptions": java_options.rstrip(),
        # Otherwise Spark's workers would run the first python3 of the PATH.
        "spark.pyspark.python": sys.executable,
        **PROCESS,
        **(LOOPBACK if spark.is_local else {}),
        **SESSION,
        **_jars(spark, lake),
        **_catalog(lake),
        **spark.conf,
    }
    # The command line would take precedence.
    return {name: value for name, value in conf.items() if name not in launch_secrets(spark, lake)}


def launch_secrets(spark: SparkSettings, lake: LakeSettings) -> dict[str, str]:
    """Return additional settings for the start of the platform's own process, in a private file.

    These are settings of the catalog or `spark.conf` that are not known to be harmless. Spark's event log
    hides the settings from the start of a process, but not those set by a session later.
    """
    if spark.remote is not None:
        return {}
    catalog = {name: value for name, value in lake.spark_properties().items() if is_secret(name, value)}
    own = {
        name: value
        for name, value in spark.conf.items()
        if HARMLESS.fullmatch(name) is None or holds_secret(name, value)
    }
    return {**_catalog_properties(catalog), **own}


def session_secrets(spark: SparkSettings, lake: LakeSettings) -> dict[str, str]:
    """Return a session's properties before it uses the lake: its process may have been started by others."""
    secrets = launch_secrets(spark, lake)
    return {name: value for name, value in secrets.items() if name.startswith(CATALOGS)}


def _catalog(lake: LakeSettings) -> dict[str, str]:
    return {
        CATALOG_PREFIX: "org.apache.iceberg.spark.SparkCatalog",
        # Otherwise Iceberg's Spark catalog would hide commits of pyiceberg.
        f"{CATALOG_PREFIX}.cache-enabled": "false",
        **_catalog_properties(lake.spark_properties()),
    }


def _catalog_properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {f"{CATALOG_PREFIX}.{key}": value for key, value in properties.items()}


def _jars(spark: SparkSettings, lake: LakeSettings) -> dict[str, str]:
    if spark.jars_folder is not None:
        return {JARS_SETTING: ",".join(list_jars(spark.jars_folder))}
    return {PACKAGES_SETTING: ",".join(packages_of(spark, lake))}


def packages_of(spark: SparkSettings, lake: LakeSettings) -> tuple[str, ...]:
    """Return the packages of a session: those of the settings, and of the lake's catalog and store."""
    is_postgresql = lake.spark_properties().get("uri", "").startswith("jdbc:postgresql")
    drivers = (POSTGRESQL_DRIVER,) if is_postgresql else ()
    packages = tuple(dict.fromkeys((*spark.packages, *drivers)))
    return (*packages, *_store_packages(packages, lake))


def _store_packages(packages: Sequence[str], lake: LakeSettings) -> list[str]:
    """Return the bundle of the lake's object store, in the version of Iceberg's runtime among packages."""
    runtimes = [package for package in packages if package.startswith(RUNTIME)]
    if lake.store is None or not runtimes or any(f":{lake.store.bundle}:" in package for package in packages):
        return []
    return [f"org.apache.iceberg:{lake.store.bundle}:{runtimes[0].rpartition(':')[2]}"]


def list_jars(folder: str) -> list[str]:
    """Return the jars of a local folder, sorted.

    Raises:
        JarsUnavailable: the folder contains no jar.
    """
    jars = sorted(str(jar) for jar in Path(folder).expanduser().glob("*.jar"))
    if not jars:
        raise JarsUnavailable(
            f"No jar in the folder of the setting `spark.jars_folder`: {folder}. "
            "Put Iceberg's Spark runtime and the catalog's JDBC driver there, "
            "or remove the setting to download them from Maven Central."
        )
    return jars
