"""The number and size of changes that lack values, which decide whether workers complete them."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.commits.commits import count_rows, head, number_of
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.spark.log.order import SINGLE_TASK_RECORDS, UNSOUND

_LACKED: Final = ("table_name", "unavailable_columns")


@dataclass(frozen=True)
class DriverBounds:
    """Up to how much comes to the driver, where it is several times as large.

    Args:
        most_changes: changes of a batch.
        most_bytes: their values and, by estimate, those of the stored rows that they are completed from;
            also the keys of rows that lack values.
        most_rows: rows that lack values, at most one a change, whose keys the driver hands to every task.
    """

    most_changes: int = SINGLE_TASK_RECORDS
    most_bytes: int = 64 * 1024 * 1024
    most_rows: int = 500_000


DRIVER_BOUNDS: Final = DriverBounds()


@dataclass(frozen=True)
class Lacking:
    """Changes of a batch: how many, how many of them go to quarantine, and what they lack.

    Args:
        changes: how many there are.
        unsound: how many go to quarantine.
        lacking: how many lack values, by table; tables of which none does are left out.
        columns: which columns they lack, by table.
        value_bytes: of the values of all changes, as texts.
        key_bytes: of the keys of those that lack values.
    """

    changes: int
    unsound: int
    lacking: Mapping[str, int]
    columns: Mapping[str, frozenset[str]]
    value_bytes: int
    key_bytes: int


def measure_lacking(ordered: DataFrame, condition: str) -> Lacking:
    """Measure a batch; one Spark job.

    Args:
        ordered: the result of `order_records`, best persisted.
        condition: SQL of which changes are to be completed.
    """
    lacking = F.expr(condition)
    rows = (
        ordered.groupBy("table_name")
        .agg(
            F.count(F.lit(1)).alias("changes"),
            F.count_if(F.col(UNSOUND)).alias("unsound"),
            F.count_if(lacking).alias("lacking"),
            F.flatten(F.collect_set(F.when(lacking, F.col("unavailable_columns")))).alias("columns"),
            F.coalesce(F.sum(F.octet_length("new_values")), F.lit(0)).alias("value_bytes"),
            F.coalesce(F.sum(F.when(lacking, F.octet_length("keys"))), F.lit(0)).alias("key_bytes"),
        )
        .collect()
    )
    return Lacking(
        changes=sum(row["changes"] for row in rows),
        unsound=sum(row["unsound"] for row in rows),
        lacking={row["table_name"]: row["lacking"] for row in rows if row["lacking"]},
        columns={row["table_name"]: frozenset(row["columns"]) for row in rows if row["lacking"]},
        value_bytes=sum(row["value_bytes"] for row in rows),
        key_bytes=sum(row["key_bytes"] for row in rows),
    )


def measure_lacking_rows(ordered: pa.Table, lacking: pa.Table) -> Lacking:
    """Measure the rows that lack values in a batch that is in the memory of this process.

    Args:
        ordered: the changes of the batch.
        lacking: the changes among them whose values have to be completed.
    """
    columns: defaultdict[str, set[str]] = defaultdict(set)
    counts = Counter(lacking["table_name"].to_pylist())
    for table, names in zip(*(lacking[name].to_pylist() for name in _LACKED), strict=True):
        columns[table].update(names)
    return Lacking(
        changes=ordered.num_rows,
        unsound=pc.sum(ordered[UNSOUND]).as_py() or 0,
        lacking=dict(counts),
        columns={table: frozenset(names) for table, names in columns.items()},
        value_bytes=pc.sum(pc.binary_length(ordered["new_values"])).as_py() or 0,
        key_bytes=pc.sum(pc.binary_length(lacking["keys"])).as_py() or 0,
    )


def has_few_rows(bounds: DriverBounds, lacking: Lacking) -> bool:
    """Return whether the rows that lack values are few enough for each task to have all their keys."""
    return sum(lacking.lacking.values()) <= bounds.most_rows and lacking.key_bytes <= bounds.most_bytes


def is_within(bounds: DriverBounds, pipeline: Pipeline, lacking: Lacking) -> bool:
    """Return whether the driver may take a batch whole.

    A stored row counts as the mean of its table's files has it, compressed as that is.
    """
    if lacking.changes > bounds.most_changes or lacking.value_bytes > bounds.most_bytes:
        return False
    stored_bytes = sum(
        changes * _mean_row_bytes(pipeline, table) for table, changes in lacking.lacking.items()
    )
    return lacking.value_bytes + stored_bytes <= bounds.most_bytes


def _mean_row_bytes(pipeline: Pipeline, table: str) -> int:
    stored = pipeline.lake.table(table)
    snapshot = head(stored) if stored is not None else None
    size = number_of(snapshot, "total-files-size") if snapshot is not None else None
    return (size or 0) // max(1, count_rows(snapshot) or 0)
