"""Completing a large batch of changes: workers follow each row alone, after what the table has of it."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.pipeline.stored_rows import LACKS, Lookup
from cdc_platform.pipeline.stories import (
    REST,
    STORED,
    STORED_PLACE,
    TOLD,
    UNKNOWN,
    UNKNOWN_PLACE,
    Stories,
)
from cdc_platform.spark.held import hold
from cdc_platform.spark.some_rows import IS_TRUNCATE, ROW_ID
from cdc_platform.spark.unresolved import LACKS_VALUES

_IS_ASKED: Final = f"({LACKS_VALUES} AND table_name IS NOT NULL AND keys IS NOT NULL)"


def complete_apart(lookup: Lookup, ordered: DataFrame, held: ExitStack, *, is_few: bool) -> DataFrame:
    """Return changes with the values that the source left out; not in the order of the log any more.

    Nothing of the size of the batch comes to the driver but, where they are few, the keys of the rows.

    Args:
        lookup: where values are looked for that the batch does not tell; has all columns that changes lack.
        ordered: changes, of which none that lacks values belongs to a row that takes part in a change of key.
        held: ends when nobody asks for the changes any more.
        is_few: whether the rows that lack values are few enough for each task to have all their keys, so
            that no table has to be moved.
    """
    ids = ordered.where(_IS_ASKED).select(*ROW_ID).distinct()
    if is_few:
        ids = F.broadcast(ids)
    rest = [name for name in ordered.columns if name not in TOLD]
    changes = ordered.where(f"NOT {IS_TRUNCATE}").join(ids, list(ROW_ID), "left_semi")
    lines = changes.select(*TOLD, F.when(F.expr(LACKS_VALUES), F.struct(*rest)).alias(REST))
    for told in _stored(lookup, ids, held):
        lines = lines.unionByName(told, allowMissingColumns=True)
    stories = Stories(tuple(ordered.columns), _truncates(ordered, lookup.columns))
    by_row = lines.repartition(*ROW_ID).sortWithinPartitions(*ROW_ID, "ordinal")
    done = by_row.mapInArrow(stories, ordered.schema).sortWithinPartitions("ordinal")
    return ordered.where(f"NOT {_IS_ASKED}").unionByName(hold(held, done))


def _truncates(ordered: DataFrame, asked: Collection[str]) -> Mapping[str, Sequence[int]]:
    """Return the ordinals of the truncates of tables."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for row in ordered.where(IS_TRUNCATE).select("table_name", "ordinal").orderBy("ordinal").collect():
        if row["table_name"] in asked:
            found[row["table_name"]].append(row["ordinal"])
    return dict(found)


def _stored(lookup: Lookup, ids: DataFrame, held: ExitStack) -> list[DataFrame]:
    """Return lines of what the tables have of rows, and of what they have as NULL for want of a value."""
    found = [lookup.rows(name, _keys_of(ids, name)) for name in sorted(lookup.columns)]
    tables = [frame for frame in found if frame is not None]
    if not tables:
        return []
    rows = hold(held, reduce(DataFrame.union, tables))
    lines = _lines(rows.select(*ROW_ID, "new_values"), STORED, STORED_PLACE)
    doubtful = rows.where(LACKS).select(*ROW_ID)
    if doubtful.isEmpty():
        return [lines]
    unknown = lookup.unresolved(doubtful).groupBy(*ROW_ID)
    columns = unknown.agg(F.collect_list("column_name").alias("unavailable_columns"))
    return [lines, _lines(columns, UNKNOWN, UNKNOWN_PLACE)]


def _keys_of(ids: DataFrame, table: str) -> DataFrame:
    return ids.where(F.col("table_name") == table).select("keys")


def _lines(frame: DataFrame, kind: str, place: int) -> DataFrame:
    return frame.select("*", F.lit(kind).alias("change_kind"), F.lit(place).cast("bigint").alias("ordinal"))
