"""Settings of a running session, those for small queries, and the number of its concurrent tasks."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from pyspark.sql import SparkSession


@contextmanager
def changed_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session within the context, and restore or unset them at its end."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, former in before.items():
            spark.conf.unset(key) if former is None else spark.conf.set(key, former)


INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Iceberg's vectorised reader leaves allocators on the heap for every file that it reads
    # (apache/iceberg#13937); for some thousand rows it is not faster.
    "spark.sql.iceberg.vectorization.enabled": "false",
}
PLANNED_ONCE: Final = {"spark.sql.adaptive.enabled": "false"}
"""For queries that state the number of tasks of each exchange.

Otherwise each exchange is a separate job, after which Spark plans the rest again.
"""
ONE_TASK: Final = {**PLANNED_ONCE, "spark.sql.shuffle.partitions": "1"}


def interpreting(
    spark: SparkSession, *, when: bool, in_one_task: bool = False
) -> AbstractContextManager[None]:
    """Let the session interpret expressions and read files row by row within the context, if few rows change.

    The bounds of a cycle are literals in its queries, so Spark compiles their code again in each cycle. For
    some thousand rows that takes longer than processing them. ``in_one_task`` means that everything that
    these queries read is small, so that exchanges need not distribute it.
    """
    settings = {**INTERPRETED, **(ONE_TASK if in_one_task else {})} if when else {}
    return changed_settings(spark, settings)


LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)[^\]]*\])?")


def local_cores(spark: SparkSession) -> int | None:
    """Return the number of concurrent tasks of Spark on one machine; None for a cluster, which may grow."""
    return cores_of(spark.conf.get("spark.master", None) or "")


def cores_of(master: str) -> int | None:
    """Return the same from the master's address."""
    match = LOCAL.fullmatch(master)
    if match is None:
        return None
    cores = match[1] or "1"
    return (os.cpu_count() or 1) if cores == "*" else int(cores)
