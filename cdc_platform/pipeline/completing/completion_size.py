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
from cdc_platform.spark.log.order import SINGLE_TASK_RECORDS, UNSOUND
from cdc_platform.spark.log.unresolved import LACKS_VALUES

_MOST_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of these keys; and of a batch, or by estimate of stored rows, that come to the driver, which
needs several times as many."""


@dataclass(frozen=True)
class Bounds:
    """Bounds up to which completing is quicker in one place.

    Args:
        most_here: a batch of so many changes is completed in this process.
        most_rows: of so many rows every task gets the keys; for more, the tables are moved to them.
    """

    most_here: int = SINGLE_TASK_RECORDS
    most_rows: int = 500_000


BOUNDS: Final = Bounds()
BY_TASKS: Final = Bounds(most_here=0)


@dataclass(frozen=True)
class Lacking:
    """Changes of a batch that are to be completed.

    Args:
        columns: which columns sound changes lack, by table; only tables of which a change is to be completed.
        changes: how many are to be completed.
        key_bytes: of their keys.
        batch: how many changes the batch has.
        value_bytes: of the values of all of them.
    """

    columns: Mapping[str, frozenset[str]]
    changes: int
    key_bytes: int
    batch: int
    value_bytes: int

    def fits_driver(self, bounds: Bounds) -> bool:
        """Return whether the driver may have the whole batch, which it completes sooner than tasks do."""
        return self.batch <= bounds.most_here and self.value_bytes <= _MOST_BYTES

    def is_few(self, bounds: Bounds) -> bool:
        """Return whether each task may have the keys of all their rows, so that no table has to be moved."""
        return self.changes <= bounds.most_rows and self.key_bytes <= _MOST_BYTES


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
        F.count(F.lit(1)).alias("batch"),
        F.coalesce(F.sum(F.octet_length("new_values")), F.lit(0)).alias("value_bytes"),
    )
    rows = measured.collect()
    return Lacking(
        columns={row["table_name"]: frozenset(row["columns"]) for row in rows if row["changes"]},
        **{name: sum(row[name] for row in rows) for name in ("changes", "key_bytes", "batch", "value_bytes")},
    )


def stored_rows_fit(pipeline: Pipeline, lacking: pa.Table) -> bool:
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
