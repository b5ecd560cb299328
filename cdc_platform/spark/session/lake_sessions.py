"""Sessions of a process for several lakes: Spark starts once, and each session has catalogs of its own."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from cdc_platform.errors import SettingError
from cdc_platform.spark.launch.config import CATALOG_PREFIX, JARS_SETTING, PACKAGES_SETTING
from cdc_platform.spark.launch.jars import CLASS_PATH_SETTING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAREHOUSE: Final = f"{CATALOG_PREFIX}.warehouse"


def running_session() -> "SparkSession | None":
    """Return the session with which this process has started Spark; None before that."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # A builder without settings returns that session unchanged; the active one differs from thread to thread.
    is_running = SparkContext._active_spark_context is not None  # noqa: SLF001  it has no public name
    return SparkSession.builder.getOrCreate() if is_running else None


def serves_lake(session: "SparkSession", conf: Mapping[str, str]) -> bool:
    """Return whether a session has the catalog of these settings, or none yet."""
    catalog = {name: value for name, value in conf.items() if name.startswith(f"{CATALOG_PREFIX}.")}
    has_none = session.conf.get(WAREHOUSE, None) is None
    return has_none or all(session.conf.get(name, None) == value for name, value in catalog.items())


def open_lake_session(session: "SparkSession", conf: Mapping[str, str]) -> "SparkSession":
    """Return another session of the same process, with the catalog of another lake.

    Args:
        session: the session with which the process has started Spark.
        conf: the settings of a session of the other lake; those of a process have no effect.

    Raises:
        SettingError: the other lake needs jars that the process has not loaded.
    """
    if missing := _missing_jars(conf):
        problem = (
            "needs jars that another pipeline has not loaded in the same process "
            f"({', '.join(missing)}); run them one by one, or use `spark.remote`: {conf[WAREHOUSE]}"
        )
        raise SettingError("lake.path", problem)
    lake_session = session.newSession()
    for name in lake_session.conf.getAll:
        if name.startswith(f"{CATALOG_PREFIX}."):
            lake_session.conf.unset(name)
    for name, value in conf.items():
        if name.startswith(CATALOG_PREFIX) or lake_session.conf.isModifiable(name):
            lake_session.conf.set(name, value)
    return lake_session


def _missing_jars(conf: Mapping[str, str]) -> list[str]:
    """Return the jars and packages of a session that this process has not loaded, in whichever form."""
    from pyspark import SparkContext

    # Those of the start: each later request for a session writes its own settings into the session.
    start = SparkContext.getOrCreate().getConf()
    loaded = " ".join(start.get(name) or "" for name in (PACKAGES_SETTING, JARS_SETTING, CLASS_PATH_SETTING))
    packages = [name.partition(":")[2] for name in conf.get(PACKAGES_SETTING, "").split(",")]
    jars = [*packages, *conf.get(JARS_SETTING, "").split(",")]
    # A package `GROUP:NAME:VERSION` is a jar `NAME-VERSION.jar`.
    return [jar for jar in jars if jar.replace(":", "-") not in loaded.replace(":", "-")]
