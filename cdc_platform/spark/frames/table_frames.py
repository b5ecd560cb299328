"""Cached frames, and the versions of tables that they read."""

from contextlib import ExitStack
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


def read_version(spark: SparkSession, table: str, snapshot_id: int) -> DataFrame:
    """Return the rows of a snapshot of a table, of any branch, with the columns of that version.

    Only such a frame can be cached safely. Spark caches a frame by its plan; a write to a table replaces
    every cached plan that reads the table's newest version. `unpersist` no longer finds that plan, so it and
    all that it refers to, such as broadcast tables, are never released.

    ``table`` is Spark's name of the table, without a branch.
    """
    return spark.read.option("versionAsOf", str(snapshot_id)).table(table)


def read_current(spark: SparkSession, table: str) -> DataFrame:
    """Return the current rows of a table or branch, by its name in Spark; never cache them."""
    return spark.table(table)


def with_columns_of(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return rows of an older version of a table with the columns of a schema; new ones are NULL."""
    names = set(rows.columns)
    return rows.select(
        *(
            field.name if field.name in names else F.lit(None).cast(field.dataType).alias(field.name)
            for field in schema.fields
        )
    )


def cache_frame(cache: ExitStack, frame: DataFrame) -> DataFrame:
    """Cache a frame until the end of the stack, and return it.

    Args:
        cache: the stack that releases the frame.
        frame: frame that reads tables only by `read_version`.
    """
    cached_frame = frame.persist()
    cache.callback(cached_frame.unpersist)
    return cached_frame


def collect_frame(frame: DataFrame) -> DataFrame:
    """Compute a frame of few rows now, and return it as local data that is part of every query."""
    return local_frame(frame.sparkSession, frame.toArrow())


def local_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return few rows as local data that is part of every query.

    Spark Connect takes the types of a table without rows only from a schema.
    """
    if not rows.num_rows:
        # pyspark needs a chunk of each column.
        return spark.createDataFrame(rows.schema.empty_table(), from_arrow_schema(rows.schema))
    return spark.createDataFrame(rows)


def cache_view(cache: ExitStack, frame: DataFrame) -> str:
    """Create a temporary view of a frame until the end of the stack, and return its name."""
    view = f"cached_{uuid4().hex}"
    frame.createOrReplaceTempView(view)
    cache.callback(frame.sparkSession.catalog.dropTempView, view)
    return view
