"""Number and size of the changes that lack values, which decide where they are completed."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.commits.commits import count_rows, head, number_of
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.spark.log.order import UNSOUND
from cdc_platform.spark.log.unresolved import LACKS_VALUES

MOST_ROWS: Final = 500_000
"""Most rows whose keys every task gets."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of these keys; and of stored rows, by estimate, that come to the driver, where they are several
times as large."""


@dataclass(frozen=True)
class Lacking:
    """Changes of a batch that are to be completed.

    Args:
        columns: which columns sound changes lack, by table; only tables of which a change is to be completed.
        changes: how many are to be completed.
        key_bytes: of their keys.
    """

    columns: Mapping[str, frozenset[str]]
    changes: int
    key_bytes: int

    def is_few(self, most_rows: int) -> bool:
        """Return whether each task may have the keys of all their rows, so that no table has to be moved."""
        return self.changes <= most_rows and self.key_bytes <= _MOST_BYTES


def measure_lacking(ordered: DataFrame, condition: str) -> Lacking:
    """Measure a batch; one Spark job.

    Args:
        ordered: the result of `order_events`, best persisted.
        condition: SQL of which changes are to be completed.
    """
    is_asked = F.expr(condition)
    lacked = F.when(F.expr(f"NOT {UNSOUND} AND {LACKS_VALUES}"), F.col("unavailable_columns"))
    measured = ordered.groupBy("table_name").agg(
        F.count_if(is_asked).alias("changes"),
        F.flatten(F.collect_set(lacked)).alias("columns"),
        F.coalesce(F.sum(F.when(is_asked, F.octet_length("keys"))), F.lit(0)).alias("key_bytes"),
    )
    rows = measured.where("changes > 0").collect()
    return Lacking(
        columns={row["table_name"]: frozenset(row["columns"]) for row in rows},
        changes=sum(row["changes"] for row in rows),
        key_bytes=sum(row["key_bytes"] for row in rows),
    )


def fits_driver(pipeline: Pipeline, lacking: pa.Table) -> bool:
    """Return whether the driver may have the stored rows of some changes.

    A stored row counts as the mean of its table's files has it, compressed as that is.
    """
    changes = Counter(lacking["table_name"].to_pylist())
    stored_bytes = sum(number * _mean_row_bytes(pipeline, table) for table, number in changes.items())
    return stored_bytes <= _MOST_BYTES


def _mean_row_bytes(pipeline: Pipeline, table: str) -> int:
    stored = pipeline.lake.table(table)
    snapshot = head(stored) if stored is not None else None
    size = number_of(snapshot, "total-files-size") if snapshot is not None else None
    return (size or 0) // max(1, count_rows(snapshot) or 0)
