"""Completing a large batch of changes: workers follow each key chain, after the rows of the tables."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.pipeline.completing.key_chains import (
    CHANGE_COLUMNS,
    KEY_CHAIN,
    LINE,
    REST,
    STORED,
    STORED_PLACE,
    UNKNOWN,
    UNKNOWN_PLACE,
    ChainCompleter,
)
from cdc_platform.pipeline.completing.stored_rows import LACKS, Lookup
from cdc_platform.pipeline.versions.lake_frames import read_log
from cdc_platform.spark.frames.some_rows import IS_TRUNCATE, ROW_ID
from cdc_platform.spark.frames.table_frames import cache_frame
from cdc_platform.spark.log.unresolved import LACKS_VALUES

_IS_ASKED: Final = f"({LACKS_VALUES} AND table_name IS NOT NULL AND keys IS NOT NULL)"
_BY_CHAIN: Final = ("table_name", KEY_CHAIN)


@dataclass(frozen=True)
class DistributedCompletion:
    """The changes that workers complete.

    Args:
        lookup: where values are looked for that the batch does not have; with all columns that changes lack.
        cache: closed when nobody asks for the changes any more.
        is_few: whether the rows that lack values are few enough for each task to have all their keys, so
            that no table has to be moved.
        moved: `table_name`, `keys` and `chain` of rows that take part in a change of key; None where none of
            the changes that lack values belongs to such a row.
        only_moved: whether changes of other rows stay as they are.
    """

    lookup: Lookup
    cache: ExitStack
    is_few: bool
    moved: DataFrame | None = None
    only_moved: bool = False


def complete_distributed(ordered: DataFrame, completion: DistributedCompletion) -> DataFrame:
    """Return changes with the values that the source left out; not in the order of the log any more.

    Nothing of the size of the batch comes to the driver but, where they are few, the keys of the rows.
    """
    lookup, cache = completion.lookup, completion.cache
    lacking = ordered.where(_IS_ASKED)
    ids = _ids(lacking, completion)
    rest = [name for name in ordered.columns if name not in CHANGE_COLUMNS]
    changes = ordered.where(f"NOT {IS_TRUNCATE}").join(ids, list(ROW_ID), "left_semi")
    lines = changes.select("*", F.when(F.expr(LACKS_VALUES), F.struct(*rest)).alias(REST))
    stored = _stored(lookup, ids, cache)
    for further in (*_lines_of(lookup, stored), *_former(changes, stored, completion)):
        lines = lines.unionByName(further, allowMissingColumns=True)
    lines = _with_chains(lines, completion.moved).select(*LINE, REST)
    chains = ChainCompleter(tuple(ordered.columns), _truncates(ordered, lookup.columns))
    by_chain = lines.repartition(*_BY_CHAIN).sortWithinPartitions(*_BY_CHAIN, "ordinal")
    completed = by_chain.mapInArrow(chains, ordered.schema).sortWithinPartitions("ordinal")
    unchanged = ordered.where(f"NOT {_IS_ASKED}")
    if completion.only_moved:
        unchanged = unchanged.unionByName(lacking.join(ids, list(ROW_ID), "left_anti"))
    return unchanged.unionByName(cache_frame(cache, completed))


def _ids(lacking: DataFrame, completion: DistributedCompletion) -> DataFrame:
    """Return the rows that are followed."""
    moved = [completion.moved.select(*ROW_ID)] if completion.moved is not None else []
    single = [] if completion.only_moved else [lacking.select(*ROW_ID)]
    ids = reduce(DataFrame.union, [*moved, *single]).distinct()
    return F.broadcast(ids) if completion.is_few else ids


def _with_chains(lines: DataFrame, moved: DataFrame | None) -> DataFrame:
    if moved is None:
        return lines.withColumn(KEY_CHAIN, F.col("keys"))
    joined = lines.join(moved, list(ROW_ID), "left")
    return joined.withColumn(KEY_CHAIN, F.coalesce(KEY_CHAIN, "keys"))


def _truncates(ordered: DataFrame, tables: Collection[str]) -> Mapping[str, Sequence[int]]:
    """Return the ordinals of the truncates of tables."""
    ordinals: defaultdict[str, list[int]] = defaultdict(list)
    for row in ordered.where(IS_TRUNCATE).select("table_name", "ordinal").orderBy("ordinal").collect():
        if row["table_name"] in tables:
            ordinals[row["table_name"]].append(row["ordinal"])
    return dict(ordinals)


def _stored(lookup: Lookup, ids: DataFrame, cache: ExitStack) -> DataFrame | None:
    """Return what the tables have of rows; None where there is no table yet."""
    frames = [lookup.rows(name, _keys_of(ids, name)) for name in sorted(lookup.columns)]
    tables = [frame for frame in frames if frame is not None]
    return cache_frame(cache, reduce(DataFrame.union, tables)) if tables else None


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


def _former(
    changes: DataFrame, stored: DataFrame | None, completion: DistributedCompletion
) -> list[DataFrame]:
    """Return lines of what the log has of rows that gave their keys up in an earlier cycle.

    So it is where nothing shows that the halves of a key change belong together in one cycle.
    """
    if completion.moved is None:
        return []
    moves = changes.where(f"previous_keys IS NOT NULL AND {LACKS_VALUES}")
    movers = moves.selectExpr(
        "table_name", "previous_keys as keys", "ordinal as at", "ordering_key as placed"
    )
    if stored is not None:
        movers = movers.join(stored.select(*ROW_ID), list(ROW_ID), "left_anti")
    changed_rows = changes.selectExpr("table_name", "keys", "ordinal as named_at")
    present = movers.join(changed_rows, list(ROW_ID)).where("named_at < at").select(*ROW_ID, "at")
    movers = movers.join(present, [*ROW_ID, "at"], "left_anti").groupBy(*ROW_ID).agg(F.min("placed"))
    movers = cache_frame(completion.cache, movers.toDF(*ROW_ID, "placed"))
    if movers.isEmpty():
        return []
    lookup = completion.lookup
    log = read_log(lookup.pipeline, lookup.spark)
    emptied = log.where(IS_TRUNCATE).groupBy("table_name").agg(F.max("ordinal").alias("emptied_at"))
    former = log.join(movers, list(ROW_ID)).where("ordering_key < placed")
    living = former.join(emptied, "table_name", "left").where("ordinal > coalesce(emptied_at, -1)")
    return [living.select(*CHANGE_COLUMNS).drop("previous_keys")]


def _keys_of(ids: DataFrame, table: str) -> DataFrame:
    return ids.where(F.col("table_name") == table).select("keys")


def _lines(frame: DataFrame, kind: str, place: int) -> DataFrame:
    return frame.select("*", F.lit(kind).alias("change_kind"), F.lit(place).cast("bigint").alias("ordinal"))
