"""Completing changes that come late, by a replay: what tables have of their rows may be newer than they are.

Values are those of the moment, so that the rows are followed through the whole log, in the source's order.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.model.base.timestamps import from_datetime
from cdc_platform.model.rows.connected_rows import connected
from cdc_platform.model.rows.resolution import RowId, resolve
from cdc_platform.pipeline.completing.key_chains import CHANGE_COLUMNS, ChainChange
from cdc_platform.pipeline.completing.stored_rows import Lookup
from cdc_platform.pipeline.schema.evolve import known_through
from cdc_platform.pipeline.schema.retyped_columns import NOTHING
from cdc_platform.pipeline.versions.lake_frames import read_log
from cdc_platform.spark.frames.some_rows import IS_TRUNCATE, ROW_ID, changes_of, ids_frame

_TAKEN: Final = (*CHANGE_COLUMNS, "ordering_key", "commit_timestamp")


def late_rows(lookup: Lookup, ordered: DataFrame) -> frozenset[RowId]:
    """Return the rows of changes that are older than one in the log, with all whose keys these have had.

    Args:
        lookup: tells the log; those of the changes are not in it yet.
        ordered: changes that enter it.
    """
    log = read_log(lookup.pipeline, lookup.spark)
    own, former = (
        ordered.selectExpr("table_name", f"{key} as keys", "ordering_key as placed")
        for key in ("keys", "previous_keys")
    )
    coming = own.union(former).dropna()
    logged = log.select(*ROW_ID, "ordering_key")
    emptied = log.where(IS_TRUNCATE).groupBy("table_name").agg(F.max("ordering_key").alias("ordering_key"))
    later = coming.join(logged, list(ROW_ID)).unionByName(
        coming.join(emptied, "table_name"), allowMissingColumns=True
    )
    late = {
        (row[0], row[1]) for row in later.where("placed < ordering_key").select(*ROW_ID).distinct().collect()
    }
    return connected(late, [*_links(log, late), *_links(ordered, late)]) if late else frozenset()


def resolve_late(lookup: Lookup, ordered: DataFrame, ids: Collection[RowId]) -> list[tuple[Any, ...]]:
    """Return ordinal, values and what is left unresolved of the changes of late rows that lack values.

    All changes of these rows come to the driver, of which a replay has few.
    """
    log = read_log(lookup.pipeline, lookup.spark)
    since = known_through(lookup.pipeline, lookup.cycle).observed_since
    earlier = [(line["ordinal"], line, _with_present_types(lookup, since, line)) for line in _lines(log, ids)]
    coming = [(line["ordinal"], line, ChainChange.of(line)) for line in _lines(ordered, ids)]
    in_order = sorted([*earlier, *coming], key=lambda entry: (entry[1]["ordering_key"] or "", entry[0]))
    resolved = resolve([logged.change for _, _, logged in in_order], {}).changes
    ordinals = {ordinal for ordinal, _, logged in coming if logged.change.unavailable}
    return [
        (ordinal, logged.values_of(change), list(change.unavailable))
        for (ordinal, _, logged), change in zip(in_order, resolved, strict=True)
        if ordinal in ordinals
    ]


def _links(changes: DataFrame, ids: Collection[RowId]) -> list[tuple[RowId, RowId]]:
    of_tables = F.col("table_name").isin(*{name for name, _ in ids})
    moves = changes.where(of_tables & F.col("previous_keys").isNotNull())
    return [((row[0], row[1]), (row[0], row[2])) for row in moves.select(*ROW_ID, "previous_keys").collect()]


def _lines(changes: DataFrame, ids: Collection[RowId]) -> list[dict[str, Any]]:
    tables = {name for name, _ in ids}
    rows = changes_of(changes, ids_frame(changes.sparkSession, ids), tables).select(*_TAKEN).toArrow()
    lines: list[dict[str, Any]] = rows.to_pylist()
    return lines


def _with_present_types(
    lookup: Lookup, since: Mapping[tuple[str, str], int], line: Mapping[str, Any]
) -> ChainChange:
    """Return a change of the log without values that its columns had under another type."""
    logged = ChainChange.of(line)
    table, committed = line["table_name"], from_datetime(line["commit_timestamp"])
    replaced = lookup.replaced.get(table, NOTHING)
    values = {
        name: value
        for name, value in (logged.change.new_values or {}).items()
        if name not in replaced and since.get((table, name), 0) <= committed
    }
    return replace(logged, change=replace(logged.change, new_values=values))
