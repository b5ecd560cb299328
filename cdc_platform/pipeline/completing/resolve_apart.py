"""Completing a large batch of changes: workers follow each story, after what the tables have of its rows."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.pipeline.completing.key_chains import (
    LINE,
    REST,
    STORED,
    STORED_PLACE,
    STORY,
    TOLD,
    UNKNOWN,
    UNKNOWN_PLACE,
    Stories,
)
from cdc_platform.pipeline.completing.stored_rows import LACKS, Lookup
from cdc_platform.pipeline.versions.lake_frames import read_log
from cdc_platform.spark.frames.some_rows import IS_TRUNCATE, ROW_ID
from cdc_platform.spark.frames.table_frames import hold
from cdc_platform.spark.log.unresolved import LACKS_VALUES

_IS_ASKED: Final = f"({LACKS_VALUES} AND table_name IS NOT NULL AND keys IS NOT NULL)"
_BY_STORY: Final = ("table_name", STORY)


@dataclass(frozen=True)
class Apart:
    """What workers are to complete.

    Args:
        lookup: where values are looked for that the batch does not tell; has all columns that changes lack.
        held: ends when nobody asks for the changes any more.
        is_few: whether the rows that lack values are few enough for each task to have all their keys, so
            that no table has to be moved.
        moved: `table_name`, `keys` and `story` of rows that take part in a change of key; None where none of
            the changes that lack values belongs to such a row.
        only_moved: whether changes of other rows stay as they are.
    """

    lookup: Lookup
    held: ExitStack
    is_few: bool
    moved: DataFrame | None = None
    only_moved: bool = False


def complete_apart(ordered: DataFrame, apart: Apart) -> DataFrame:
    """Return changes with the values that the source left out; not in the order of the log any more.

    Nothing of the size of the batch comes to the driver but, where they are few, the keys of the rows.
    """
    lookup, held = apart.lookup, apart.held
    asked = ordered.where(_IS_ASKED)
    ids = _ids(asked, apart)
    rest = [name for name in ordered.columns if name not in TOLD]
    changes = ordered.where(f"NOT {IS_TRUNCATE}").join(ids, list(ROW_ID), "left_semi")
    lines = changes.select("*", F.when(F.expr(LACKS_VALUES), F.struct(*rest)).alias(REST))
    stored = _stored(lookup, ids, held)
    for told in (*_lines_of(lookup, stored), *_former(changes, stored, apart)):
        lines = lines.unionByName(told, allowMissingColumns=True)
    lines = _with_stories(lines, apart.moved).select(*LINE, REST)
    stories = Stories(tuple(ordered.columns), _truncates(ordered, lookup.columns))
    by_story = lines.repartition(*_BY_STORY).sortWithinPartitions(*_BY_STORY, "ordinal")
    done = by_story.mapInArrow(stories, ordered.schema).sortWithinPartitions("ordinal")
    others = ordered.where(f"NOT {_IS_ASKED}")
    if apart.only_moved:
        others = others.unionByName(asked.join(ids, list(ROW_ID), "left_anti"))
    return others.unionByName(hold(held, done))


def _ids(asked: DataFrame, apart: Apart) -> DataFrame:
    """Return the rows that are followed."""
    moved = [apart.moved.select(*ROW_ID)] if apart.moved is not None else []
    others = [] if apart.only_moved else [asked.select(*ROW_ID)]
    ids = reduce(DataFrame.union, [*moved, *others]).distinct()
    return F.broadcast(ids) if apart.is_few else ids


def _with_stories(lines: DataFrame, moved: DataFrame | None) -> DataFrame:
    if moved is None:
        return lines.withColumn(STORY, F.col("keys"))
    joined = lines.join(moved, list(ROW_ID), "left")
    return joined.withColumn(STORY, F.coalesce(STORY, "keys"))


def _truncates(ordered: DataFrame, asked: Collection[str]) -> Mapping[str, Sequence[int]]:
    """Return the ordinals of the truncates of tables."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for row in ordered.where(IS_TRUNCATE).select("table_name", "ordinal").orderBy("ordinal").collect():
        if row["table_name"] in asked:
            found[row["table_name"]].append(row["ordinal"])
    return dict(found)


def _stored(lookup: Lookup, ids: DataFrame, held: ExitStack) -> DataFrame | None:
    """Return what the tables have of rows; None where there is no table yet."""
    found = [lookup.rows(name, _keys_of(ids, name)) for name in sorted(lookup.columns)]
    tables = [frame for frame in found if frame is not None]
    return hold(held, reduce(DataFrame.union, tables)) if tables else None


def _lines_of(lookup: Lookup, rows: DataFrame | None) -> list[DataFrame]:
    """Return lines of what the tables have of rows, and of what they have as NULL for want of a value."""
    if rows is None:
        return []
    lines = _lines(rows.select(*ROW_ID, "new_values"), STORED, STORED_PLACE)
    doubtful = rows.where(LACKS).select(*ROW_ID)
    if doubtful.isEmpty():
        return [lines]
    unknown = lookup.unresolved(doubtful).groupBy(*ROW_ID)
    columns = unknown.agg(F.collect_list("column_name").alias("unavailable_columns"))
    return [lines, _lines(columns, UNKNOWN, UNKNOWN_PLACE)]


def _former(changes: DataFrame, stored: DataFrame | None, apart: Apart) -> list[DataFrame]:
    """Return lines of what the log has of rows that gave their keys up in an earlier cycle.

    So it is where nothing tells that the halves of a key change belong together in one cycle.
    """
    if apart.moved is None:
        return []
    moves = changes.where(f"previous_keys IS NOT NULL AND {LACKS_VALUES}")
    movers = moves.selectExpr(
        "table_name", "previous_keys as keys", "ordinal as at", "ordering_key as placed"
    )
    if stored is not None:
        movers = movers.join(stored.select(*ROW_ID), list(ROW_ID), "left_anti")
    told = changes.selectExpr("table_name", "keys", "ordinal as told_at")
    known = movers.join(told, list(ROW_ID)).where("told_at < at").select(*ROW_ID, "at")
    movers = movers.join(known, [*ROW_ID, "at"], "left_anti").groupBy(*ROW_ID).agg(F.min("placed"))
    movers = hold(apart.held, movers.toDF(*ROW_ID, "placed"))
    if movers.isEmpty():
        return []
    lookup = apart.lookup
    log = read_log(lookup.pipeline, lookup.spark)
    emptied = log.where(IS_TRUNCATE).groupBy("table_name").agg(F.max("ordinal").alias("emptied_at"))
    former = log.join(movers, list(ROW_ID)).where("ordering_key < placed")
    living = former.join(emptied, "table_name", "left").where("ordinal > coalesce(emptied_at, -1)")
    return [living.select(*TOLD).drop("previous_keys")]


def _keys_of(ids: DataFrame, table: str) -> DataFrame:
    return ids.where(F.col("table_name") == table).select("keys")


def _lines(frame: DataFrame, kind: str, place: int) -> DataFrame:
    return frame.select("*", F.lit(kind).alias("change_kind"), F.lit(place).cast("bigint").alias("ordinal"))
