"""Choice of the garbage collector for Spark's Java process."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from cdc_platform.spark.session.properties import SUBMIT_ARGUMENTS, conf_folder
from cdc_platform.spark.session.spark_settings import SparkSettings

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
