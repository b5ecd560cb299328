"""Frames that stay cached while the tables that they read are written to."""

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from cdc_platform.spark.frames.table_frames import (
    cache_frame,
    cache_view,
    local_frame,
    read_version,
    with_columns_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_serial: Final = itertools.count(1)


def cached_plans(spark: "SparkSession") -> int:
    """Return the number of plans in Spark's cache manager."""
    manager: Any = spark._jsparkSession.sharedState().cacheManager()  # noqa: SLF001  nothing else exposes it
    field = next(item for item in manager.getClass().getDeclaredFields() if "cachedData" in item.getName())
    field.setAccessible(True)
    return int(field.get(manager).size())


@pytest.fixture
def tables(spark: "SparkSession") -> tuple[str, str]:
    """Two Iceberg tables of numbers, `k`: 0 to 8 each."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.frames")
    names = (f"lake.frames.t{next(_serial)}", f"lake.frames.t{next(_serial)}")
    for name in names:
        spark.sql(f"CREATE TABLE {name} (k BIGINT) USING iceberg")
        spark.range(9).selectExpr("id AS k").writeTo(name).append()
    return names


def newest(spark: "SparkSession", table: str) -> int:
    """Return the newest snapshot of a table."""
    row = spark.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at DESC").first()
    assert row is not None
    return int(row[0])


def test_a_cached_frame_is_released_although_its_table_was_written_to(
    spark: "SparkSession", tables: tuple[str, str]
) -> None:
    """The cache is as it was before, and the frame's content did not change while it was cached."""
    before = cached_plans(spark)
    with ExitStack() as cache:
        item, other = (read_version(spark, table, newest(spark, table)) for table in tables)
        frame = cache_frame(cache, item.join(other.where("k > 4"), "k", "left_anti"))
        longer = cache_frame(cache, frame.join(other, "k", "left"))
        view = cache_view(cache, longer)
        assert (frame.count(), longer.count()) == (5, 5)
        for table in tables:
            spark.range(3).selectExpr("id AS k").writeTo(table).append()
        assert spark.table(view).count() == 5
        assert before < cached_plans(spark)
    assert before == cached_plans(spark)


def test_rows_of_an_older_version_have_columns_that_came_later(
    spark: "SparkSession", tables: tuple[str, str]
) -> None:
    """A version has the columns that it had; new ones are NULL, in the order of the table."""
    table, _ = tables
    version = newest(spark, table)
    spark.sql(f"ALTER TABLE {table} ADD COLUMN later STRING FIRST")
    rows = with_columns_of(read_version(spark, table, version), spark.table(table).schema)
    assert rows.columns == ["later", "k"]
    assert {(None, k) for k in range(9)} == {tuple(row) for row in rows.collect()}


@pytest.mark.parametrize("numbers", [[7], []])
def test_local_rows_keep_their_types(spark: "SparkSession", numbers: list[int]) -> None:
    """A table of Arrow has the same columns as a frame, with rows or without; `connect_run.py` shows both."""
    moments = pa.array([None] * len(numbers), pa.timestamp("us", "UTC"))
    rows = pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "keys": [str(n) for n in numbers] or pa.array([], pa.string()),
            "at": moments,
        }
    )
    assert rows == local_frame(spark, rows).toArrow()
