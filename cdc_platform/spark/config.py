"""The configuration of every Spark session and server of the platform."""

import sys
from pathlib import Path
from typing import Final

from cdc_platform.errors import JarsUnavailable
from cdc_platform.lake.settings import CATALOG, LakeSettings
from cdc_platform.spark.settings import POSTGRESQL_DRIVER, SparkSettings

LOG4J: Final = Path(__file__).with_name("log4j2.properties")

EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"

SESSION: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    # A patch is broadcast to the table it is merged into, whatever its size up to this one: a MERGE
    # takes no hint, and the alternative moves the whole table.
    "spark.sql.autoBroadcastJoinThreshold": "256MB",
    # A persisted patch lives for a second: compressing it costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}
"""What each session may set for itself, on a server as well."""

PROCESS: Final = {
    "spark.app.name": "cdc_platform",
    "spark.sql.extensions": EXTENSIONS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    # Ticks run many small queries of the same few shapes.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.cleaner.periodicGC.interval": "10min",
}
"""What a Spark process is started with."""


def spark_config(spark: SparkSettings, lake: LakeSettings) -> dict[str, str]:
    """Return the settings of a session; a remote one takes those that a session may set."""
    if spark.remote is not None:
        return {"spark.remote": spark.remote, **SESSION, **spark.conf}
    return {
        "spark.master": spark.master,
        "spark.driver.memory": spark.driver_memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
        # Spark's workers would otherwise run the first python3 of the PATH.
        "spark.pyspark.python": sys.executable,
        **PROCESS,
        **SESSION,
        **_jars(spark, lake),
        **_catalog(lake),
        **spark.conf,
    }


def _catalog(lake: LakeSettings) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{CATALOG}"
    properties = {f"{prefix}.{key}": value for key, value in lake.spark_properties().items()}
    # Iceberg's Spark catalog would otherwise hide what pyiceberg has committed.
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.cache-enabled": "false", **properties}


def _jars(spark: SparkSettings, lake: LakeSettings) -> dict[str, str]:
    if spark.jars_folder is not None:
        return {"spark.jars": ",".join(list_jars(spark.jars_folder))}
    packages = list(spark.packages)
    if lake.spark_properties().get("uri", "").startswith("jdbc:postgresql"):
        packages.append(POSTGRESQL_DRIVER)
    return {"spark.jars.packages": ",".join(packages)}


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
