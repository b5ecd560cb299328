"""Running small queries without generated code."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextmanager
def interpreted(spark: SparkSession, *, when: bool) -> Iterator[None]:
    """Let the session interpret its expressions meanwhile.

    The bounds of a tick are literals in its queries, so Spark compiles their code anew in each tick; for
    some thousand rows that takes longer than the rows do.
    """
    settings = INTERPRETED if when else {}
    before = {key: str(spark.conf.get(key)) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)
