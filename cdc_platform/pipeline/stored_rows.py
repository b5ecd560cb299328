"""Single rows of the tables as they were after a tick, with their values as the log writes them."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pandas as pd
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.commits import BRANCH, head, read_mark
from cdc_platform.model.names import quote_spark
from cdc_platform.model.resolution import RowId, Values
from cdc_platform.model.table_options import DELETED, keeps_deleted
from cdc_platform.model.table_schema import ARRAY, ColumnType, TableSchema
from cdc_platform.pipeline.branch import contains, finished_head
from cdc_platform.pipeline.merge import merge_tables
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.spark.typed import ORDINAL, type_changes

_NUMBER: Final = "__number"


def look_up_rows(
    pipeline: Pipeline, spark: SparkSession, ids: Iterable[RowId], tick: int
) -> Mapping[RowId, Values | None]:
    """Return the values of rows by column, as the log writes them; None where the table has no such row.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        ids: the rows.
        tick: tick of the log that the tables must have reached; one that has not is brought there.
    """
    by_table: defaultdict[str, list[str]] = defaultdict(list)
    for table, key in sorted(ids):
        by_table[table].append(key)
    known = {schema.name for schema in pipeline.tables}
    found: dict[RowId, Values | None] = dict.fromkeys(ids)
    for table, keys in by_table.items():
        version = _version(pipeline, spark, table, tick) if table in known else None
        if version is not None:
            found |= _read_rows(pipeline, spark, pipeline.stored(table), keys, version)
    return found


def _version(pipeline: Pipeline, spark: SparkSession, table: str, tick: int) -> Snapshot | None:
    """Return the snapshot that holds a table as it was after a tick."""
    if tick == 0:
        return None
    merge_tables(pipeline, spark, [pipeline.table(table)])
    found = pipeline.lake.table(table)
    if found is None:
        return None
    done = finished_head(found)
    if done is not None and read_mark(found, BRANCH).tick == tick and not contains(found, done.snapshot_id):
        return done
    return head(found)


def _read_rows(
    pipeline: Pipeline, spark: SparkSession, schema: TableSchema, keys: list[str], version: Snapshot
) -> dict[RowId, Values | None]:
    wanted = _typed_keys(spark, schema, keys)
    rows = spark.read.option("versionAsOf", str(version.snapshot_id)).table(
        pipeline.lake.spark_table(schema.name)
    )
    if keeps_deleted(schema):
        rows = rows.where(~F.col(DELETED))
    there = {name.lower() for name in rows.columns}
    values = [column for column in schema.value_columns if column.name.lower() in there]
    same = [
        F.col(quote_spark(column.name)).eqNullSafe(F.col(f"__key_{number}"))
        for number, column in enumerate(schema.key_columns)
    ]
    joined = rows.join(F.broadcast(wanted), same)
    texts = [
        _text(F.col(quote_spark(column.name)), column.type).alias(f"v{n}") for n, column in enumerate(values)
    ]
    found: dict[RowId, Values | None] = {}
    for row in joined.select(_NUMBER, *texts).collect():
        told = {column.source_name: _value(row[f"v{n}"], column.type) for n, column in enumerate(values)}
        found[(schema.name, keys[row[_NUMBER]])] = told
    return found


def _typed_keys(spark: SparkSession, schema: TableSchema, keys: list[str]) -> DataFrame:
    """Return the key columns of key texts, each with the number of its text."""
    listed = spark.createDataFrame(pd.DataFrame({"keys": keys, "ordinal": range(len(keys))}))
    nothing = F.lit(None).cast("string")
    log = listed.withColumns(
        {
            "change_kind": F.lit("delete"),
            "new_values": nothing,
            "is_whole_row": F.lit(True),
            "transaction_id": nothing,
            "commit_timestamp": nothing.cast("timestamp"),
        }
    )
    typed = type_changes(log, TableSchema(schema.name, schema.key_columns), has_patches=False)
    named = [
        F.col(quote_spark(column.name)).alias(f"__key_{number}")
        for number, column in enumerate(schema.key_columns)
    ]
    return typed.select(*named, F.col(ORDINAL).alias(_NUMBER))


def _text(value: Column, column_type: ColumnType) -> Column:
    """Return a value as text that casts to itself."""
    if column_type.code == ARRAY and column_type.element is not None:
        element = column_type.element
        return F.to_json(F.transform(value, lambda item: _text(item, element)))
    if column_type.code in {"BYTES", "PROTO"}:
        # Spark breaks the text into lines.
        return F.translate(F.base64(value), "\r\n", "")
    if column_type.code == "TIMESTAMP":
        return F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    if column_type.code == "DATETIME":
        return F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
    return value.cast("string")


def _value(text: str | None, column_type: ColumnType) -> Any:
    if text is None:
        return None
    return json.loads(text) if column_type.code == ARRAY else text
