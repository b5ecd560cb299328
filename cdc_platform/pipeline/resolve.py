"""Completing the log: values that the source did not send are found in the batch, and in the tables."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.model.connected_rows import connected, stories_of
from cdc_platform.model.records import RecordKind
from cdc_platform.model.resolution import RowChange, RowId, StoredRows, Values, needed_rows, resolve
from cdc_platform.pipeline.lacking import (
    DRIVER_BOUNDS,
    DriverBounds,
    has_few_rows,
    is_within,
    measure_lacking,
)
from cdc_platform.pipeline.lake_frames import read_log
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.reported import has_texts
from cdc_platform.pipeline.resolve_apart import Apart, complete_apart
from cdc_platform.pipeline.resolve_late import late_rows, resolve_late
from cdc_platform.pipeline.stored_rows import LACKS, Lookup
from cdc_platform.pipeline.stories import TOLD, LoggedChange
from cdc_platform.sources.json_codec import read_members
from cdc_platform.spark.order import UNSOUND
from cdc_platform.spark.some_rows import ROW_ID, changes_of, ids_frame, stories_frame
from cdc_platform.spark.unresolved import LACKS_VALUES

_TAKEN: Final = (*TOLD, "order_key")
_COMPLETED: Final = pa.schema(
    [
        ("done_ordinal", pa.int64()),
        ("done_values", pa.string()),
        ("done_unavailable", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True)
class _Batch:
    """What the completion of a batch takes, see `complete_changes`; `wanted` tells which changes it is of."""

    lookup: Lookup
    held: ExitStack
    wanted: str
    bounds: DriverBounds
    is_small: bool
    is_few: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """A change, its place in the log, and that in the source's order."""

    ordinal: int
    logged: LoggedChange
    order_key: str

    @property
    def change(self) -> RowChange:
        return self.logged.change


def complete_changes(
    pipeline: Pipeline,
    spark: SparkSession,
    ordered: DataFrame,
    tick: int,
    held: ExitStack,
    bounds: DriverBounds = DRIVER_BOUNDS,
) -> DataFrame:
    """Return ordered changes with the values that the source left out, as far as somebody knows them.

    A row that changes its key takes its values along, so these are always looked for; others only where the
    log is to be completed, since the merge of a patch leaves the stored values as they are.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        ordered: the result of `order_records`, persisted.
        tick: tick of the log before these changes, which the tables must have reached.
        held: ends when nobody asks for the changes any more.
        bounds: of a batch within them all that it takes comes to the driver; of a larger one, only what
            belongs to rows that take part in a change of key, where that is within them; and their keys.

    Raises:
        CommitConflict: another run worked on the tables at the same time.
    """
    wanted = f"NOT {UNSOUND} AND {LACKS_VALUES}"
    if not pipeline.traits.completes_log:
        wanted += " AND (previous_keys IS NOT NULL OR change_kind = 'insert')"
    found = measure_lacking(ordered, wanted)
    if not found.lacking:
        return ordered
    lookup = Lookup(pipeline, spark, tick, found.columns)
    is_small, is_few = is_within(bounds, pipeline, found), has_few_rows(bounds, found)
    batch = _Batch(lookup, held, wanted, bounds, is_small, is_few)
    if not found.unsound:
        return _complete_in_order(batch, ordered)
    # What goes to quarantine did not happen, as far as others are concerned.
    sound = ordered.where(f"NOT {UNSOUND}")
    return _complete_in_order(batch, sound).unionByName(ordered.where(UNSOUND))


def _complete_in_order(batch: _Batch, ordered: DataFrame) -> DataFrame:
    lookup = batch.lookup
    replays = f"kind = '{RecordKind.FILE.value}' and tick > {lookup.tick}"
    late = late_rows(lookup, ordered) if has_texts(lookup.pipeline, replays) else ()
    if not late:
        return _complete(batch, ordered)
    done, ids = resolve_late(lookup, ordered, late), ids_frame(lookup.spark, late)
    mine, others = (ordered.join(ids, list(ROW_ID), how) for how in ("left_semi", "left_anti"))
    return _completed(lookup.spark, mine, done).unionByName(_complete(batch, others))


def _complete(batch: _Batch, ordered: DataFrame) -> DataFrame:
    lookup = batch.lookup
    pipeline, spark, tick = lookup.pipeline, lookup.spark, lookup.tick
    links = _links(ordered)
    asked = ordered.where(batch.wanted).select(*ROW_ID).dropna().distinct()
    completes_log = pipeline.traits.completes_log
    if batch.is_small:
        ids = connected(_collect(asked), links)
        return _completed(spark, ordered, _resolve_here(pipeline, spark, ordered, ids, tick))
    if completes_log and links:
        moving = ids_frame(spark, {row_id for link in links for row_id in link})
        asked = asked.join(moving, list(ROW_ID), "left_semi")
    stories = stories_of(_collect(asked) if links or not completes_log else (), links)
    if not stories:
        return complete_apart(ordered, Apart(lookup, batch.held, batch.is_few)) if completes_log else ordered
    moved = stories_frame(spark, stories)
    mine = ordered.join(moved, list(ROW_ID), "left_semi")
    found = measure_lacking(mine, LACKS_VALUES)
    if not is_within(batch.bounds, pipeline, found):
        lookup = replace(lookup, columns={**lookup.columns, **found.columns})
        is_few = batch.is_few and has_few_rows(batch.bounds, found)
        apart = Apart(lookup, batch.held, is_few, moved, only_moved=not completes_log)
        return complete_apart(ordered, apart)
    done = _resolve_here(pipeline, spark, ordered, stories.keys(), tick)
    if not completes_log:
        return _completed(spark, ordered, done)
    others = ordered.join(moved, list(ROW_ID), "left_anti")
    apart = Apart(lookup, batch.held, batch.is_few)
    return _completed(spark, mine, done).unionByName(complete_apart(others, apart))


def _links(ordered: DataFrame) -> list[tuple[RowId, RowId]]:
    moves = ordered.where("previous_keys IS NOT NULL").select(*ROW_ID, "previous_keys").collect()
    return [((row[0], row[1]), (row[0], row[2])) for row in moves]


def _collect(ids: DataFrame) -> set[RowId]:
    return {(row[0], row[1]) for row in ids.collect()}


def _resolve_here(
    pipeline: Pipeline, spark: SparkSession, ordered: DataFrame, ids: Collection[RowId], tick: int
) -> list[tuple[Any, ...]]:
    """Return ordinal, values and what is left unresolved of the changes of some rows that lack values."""
    rows = _rows(ordered, ids)
    changes = [row.change for row in rows]
    stored = _look_up(pipeline, spark, changes, tick)
    resolution = resolve(changes, stored, _departed(pipeline, spark, rows, stored))
    return [
        (row.ordinal, row.logged.values_of(done), list(done.unavailable))
        for row, done in zip(rows, resolution.changes, strict=True)
        if row.change.unavailable
    ]


def _look_up(pipeline: Pipeline, spark: SparkSession, changes: Sequence[RowChange], tick: int) -> StoredRows:
    """Return what the tables have of the rows in which a value may be found; None where there is no row.

    A value that is unresolved itself, which the table has as NULL, is not among the values.
    """
    asked, keys = defaultdict[str, set[str]](set), defaultdict[str, list[str]](list)
    for change in changes:
        asked[change.table].update(change.unavailable)
    needed = needed_rows(changes)
    for table, key in sorted(needed):
        keys[table].append(key)
    lookup = Lookup(pipeline, spark, tick, asked)
    found: dict[RowId, Values | None] = dict.fromkeys(needed)
    doubtful: list[RowId] = []
    for table, wanted in keys.items():
        rows = lookup.rows(table, F.broadcast(spark.createDataFrame(pa.table({"keys": wanted}))))
        for row in rows.collect() if rows is not None else ():
            found[table, row["keys"]] = read_members(row["new_values"])
            if row[LACKS]:
                doubtful.append((table, row["keys"]))
    return _without_unresolved(lookup, found, doubtful)


def _without_unresolved(lookup: Lookup, found: StoredRows, doubtful: Sequence[RowId]) -> StoredRows:
    if not doubtful:
        return found
    unresolved = lookup.unresolved(ids_frame(lookup.spark, doubtful))
    unknown = {((row[0], row[1]), row[2]) for row in unresolved.collect()}
    return {
        row_id: values and {name: value for name, value in values.items() if (row_id, name) not in unknown}
        for row_id, values in found.items()
    }


def _departed(
    pipeline: Pipeline, spark: SparkSession, rows: Sequence[_Row], stored: StoredRows
) -> Mapping[RowId, Values]:
    """Return the last values of rows that gave their keys up in an earlier tick, by what the log has of them.

    So it is where nothing tells that the halves of a key change belong together in one tick.
    """
    movers = _movers(rows, stored)
    if not movers:
        return {}
    former = _rows(read_log(pipeline, spark), movers)
    found: dict[RowId, Values] = {}
    for row_id, order_key in movers.items():
        told = [
            replace(row.change, may_move=True)
            for row in former
            if row.order_key < order_key
            and row.change.table == row_id[0]
            and row.change.key in ("", row_id[1])
        ]
        found |= resolve(told, {}).departed
    return found


def _movers(rows: Sequence[_Row], stored: StoredRows) -> Mapping[RowId, str]:
    """Return the former keys of which neither these changes nor the tables have the row.

    Each has the place in the source's order at which another key took the row over.
    """
    found, known = dict[RowId, str](), set[RowId]()
    for row in rows:
        previous = row.change.previous_id
        is_known = previous is None or previous in known or stored.get(previous) is not None
        if previous is not None and row.change.unavailable and not is_known:
            found.setdefault(previous, row.order_key)
        known.add(row.change.row_id)
    return found


def _rows(log: DataFrame, ids: Collection[RowId]) -> list[_Row]:
    """Return the changes of some rows, and the truncates of their tables, in the order of the log."""
    if not ids:
        return []
    changes = changes_of(log, ids_frame(log.sparkSession, ids), {name for name, _ in ids})
    told = changes.select(*_TAKEN).orderBy("ordinal").toArrow()
    return [
        _Row(line["ordinal"], LoggedChange.of(line), line["order_key"] or "") for line in told.to_pylist()
    ]


def _completed(spark: SparkSession, ordered: DataFrame, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    if not rows:
        return ordered
    columns = list(zip(*rows, strict=True))
    done = spark.createDataFrame(pa.table(list(map(list, columns)), schema=_COMPLETED))
    joined = ordered.join(F.broadcast(done), F.col("ordinal") == F.col("done_ordinal"), "left")
    is_done = F.col("done_ordinal").isNotNull()
    nothing_left = F.size("done_unavailable") == 0
    found = {
        "new_values": F.when(is_done, F.col("done_values")).otherwise(F.col("new_values")),
        "is_whole_row": F.when(is_done, nothing_left).otherwise(F.col("is_whole_row")),
        "unavailable_columns": F.when(is_done & ~nothing_left, F.col("done_unavailable")).when(
            ~is_done, F.col("unavailable_columns")
        ),
    }
    return joined.withColumns(found).select(*ordered.columns)
