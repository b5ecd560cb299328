"""Rows without a key are numbered so that each deletion finds a row that was inserted before it."""

from typing import TYPE_CHECKING

import pytest

from cdc_platform.model.rows.keyless import keyless_keys, keys_text, row_of
from cdc_platform.spark.log.keyless import count_in_log, number_copies
from cdc_platform.spark.log.ordered_rows import number_few

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

COLUMNS_OF_LOG = "ordinal bigint, table_name string, change_kind string, keys string"
COLUMNS = f"{COLUMNS_OF_LOG}, unsound boolean"
A, B = (keyless_keys({"n": n}) for n in (1, 2))


def numbered(keys: str, copy: int) -> str:
    """Return a key with its number."""
    return keys_text(row_of(keys), copy)


LOG = [
    (1, "t", "insert", numbered(B, 1)),
    (2, "t", "truncate", "{}"),
    (3, "t", "snapshot", numbered(A, 1)),
    (4, "t", "insert", numbered(A, 2)),
    (5, "t", "insert", numbered(A, 3)),
    (6, "t", "delete", numbered(A, 3)),
    (7, "u", "insert", numbered(A, 1)),
]
COUNTS = {("t", row_of(A)): 2, ("u", row_of(A)): 1}
BATCH = [
    ("t", "insert", A, False, 3),
    ("t", "insert", A, True, None),
    ("t", "insert", B, False, 1),
    ("t", "delete", A, False, 3),
    ("t", "delete", A, False, 2),
    ("u", "delete", A, False, 1),
    ("u", "delete", A, False, 0),
    ("u", "insert", A, False, 0),
    ("t", "truncate", "{}", False, None),
    ("t", "insert", A, False, 1),
    ("keyed", "insert", '{"id":1}', False, None),
]
"""Changes, each with the number that it gets."""
ORDERED = [
    (10 + at, table, kind, keys, quarantined) for at, (table, kind, keys, quarantined, _) in enumerate(BATCH)
]


def number_by_tasks(spark: "SparkSession") -> "pa.Table":
    """Number the batch with Spark."""
    counts = [(*row, count) for row, count in COUNTS.items()]
    return number_copies(
        spark.createDataFrame(ORDERED, COLUMNS),
        spark.createDataFrame(counts, "table_name string, row string, count bigint"),
    ).toArrow()


def number_locally(spark: "SparkSession") -> "pa.Table":
    """Number the batch without Spark."""
    return number_few(spark.createDataFrame(ORDERED, COLUMNS).toArrow(), COUNTS)


@pytest.mark.parametrize("number", [number_by_tasks, number_locally])
def test_copies_are_numbered_across_cycles_and_truncates(
    spark: "SparkSession", number: "Callable[[SparkSession], pa.Table]"
) -> None:
    """Numbers continue from the rows before, restart at a truncate, and skip changes in quarantine."""
    rows = number(spark).to_pylist()
    assert [10 + at for at in range(len(BATCH))] == [row["ordinal"] for row in rows]
    for row, (_, _, keys, is_stored, copy) in zip(rows, BATCH, strict=True):
        if not is_stored:
            assert (keys if copy is None else numbered(keys, copy)) == row["keys"], row


def test_newest_change_of_the_log_shows_how_many_rows_there_are(spark: "SparkSession") -> None:
    """Rows that a truncate has removed are not counted, nor those of tables outside the request."""
    row_copies = [(table, row_of(keys)) for table in ("t", "u") for keys in (A, B)]
    log = spark.createDataFrame([*LOG, (8, "v", "insert", numbered(A, 1))], COLUMNS_OF_LOG)
    rows = count_in_log(log, spark.createDataFrame(row_copies, "table_name string, row string")).collect()
    assert {(row["table_name"], row["row"]): row["count"] for row in rows} == COUNTS
