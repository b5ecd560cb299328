"""Completing the log: values that the source did not send are found in the batch, and in the tables."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.lake import LOG
from cdc_platform.model.connected_rows import connected
from cdc_platform.model.records import ModType
from cdc_platform.model.resolution import RowChange, RowId, StoredRows, Values, needed_rows, resolve
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.stored_rows import look_up_rows
from cdc_platform.spark.unresolved import LACKS_VALUES, unresolved_values

_TAKEN: Final = (
    "ordinal",
    "table_name",
    "change_kind",
    "keys",
    "previous_keys",
    "new_values",
    "unavailable_columns",
    "is_whole_row",
    "order_key",
)
_COMPLETED: Final = pa.schema(
    [
        ("done_ordinal", pa.int64()),
        ("done_values", pa.string()),
        ("done_unavailable", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True)
class _Row:
    """A change, its place in the log, and that in the source's order."""

    ordinal: int
    change: RowChange
    order_key: str
    nulls: tuple[str, ...] = ()
    """Columns that the source did not send, and that the log names all the same, with null."""

    def with_nulls(self, done: RowChange) -> str:
        """Return the values of the completed change as the log has them."""
        nulls = {name: None for name in self.nulls if name in done.unavailable}
        return json.dumps({**(done.new_values or {}), **nulls}, ensure_ascii=False)


def complete_changes(pipeline: Pipeline, spark: SparkSession, ordered: DataFrame, tick: int) -> DataFrame:
    """Return ordered changes with the values that the source left out, as far as somebody knows them.

    A row that changes its key takes its values along, so these are always looked for; others only where the
    log is to be completed, since the merge of a patch leaves the stored values as they are.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        ordered: the result of `order_records`, persisted.
        tick: tick of the log before these changes, which the tables must have reached.

    Raises:
        CommitConflict: another run worked on the tables at the same time.
    """
    wanted = LACKS_VALUES
    if not pipeline.traits.completes_log:
        wanted += " AND (previous_keys IS NOT NULL OR change_kind = 'insert')"
    asked = _ids(ordered.where(wanted))
    if not asked:
        return ordered
    moves = ordered.where("previous_keys IS NOT NULL").select("table_name", "keys", "previous_keys").collect()
    links = [((row[0], row[1]), (row[0], row[2])) for row in moves]
    rows = list(_rows(_of_ids(spark, ordered, connected(asked, links))))
    changes = [row.change for row in rows]
    found = look_up_rows(pipeline, spark, needed_rows(changes), tick)
    stored = _without_unresolved(pipeline, spark, changes, found)
    resolution = resolve(changes, stored, _departed(pipeline, spark, rows, stored))
    completed = [
        (row.ordinal, row.with_nulls(done), list(done.unavailable))
        for row, done in zip(rows, resolution.changes, strict=True)
        if row.change.unavailable
    ]
    return _completed(spark, ordered, completed)


def _without_unresolved(
    pipeline: Pipeline, spark: SparkSession, changes: Sequence[RowChange], found: StoredRows
) -> StoredRows:
    """Return stored rows without the values that are unresolved themselves, which the tables have as NULL."""
    asked = {(change.table, column) for change in changes for column in change.unavailable}
    doubtful = [
        row_id
        for row_id, values in found.items()
        if values is not None and any((row_id[0], name) in asked and values[name] is None for name in values)
    ]
    if not doubtful:
        return found
    log = spark.table(pipeline.lake.spark_system_table(LOG))
    unknown = {
        ((row[0], row[1]), row[2]) for row in unresolved_values(_of_ids(spark, log, doubtful)).collect()
    }
    return {
        row_id: None
        if values is None
        else {name: value for name, value in values.items() if (row_id, name) not in unknown}
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
    log = spark.table(pipeline.lake.spark_system_table(LOG))
    former = list(_rows(_of_ids(spark, log, movers)))
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


def _ids(frame: DataFrame) -> set[RowId]:
    return {(row[0], row[1]) for row in frame.select("table_name", "keys").distinct().collect()}


def _of_ids(spark: SparkSession, ordered: DataFrame, ids: Iterable[RowId]) -> DataFrame:
    """Return the changes of some rows, and the truncates of their tables."""
    listed = sorted(ids)
    names = pa.table({"id_table": [name for name, _ in listed], "id_keys": [keys for _, keys in listed]})
    known = F.broadcast(spark.createDataFrame(names.to_pandas()))
    is_same = (F.col("table_name") == F.col("id_table")) & (
        (F.col("keys") == F.col("id_keys")) | (F.col("change_kind") == "truncate")
    )
    return ordered.join(known, is_same, "left_semi").select(*_TAKEN).orderBy("ordinal")


def _rows(frame: DataFrame) -> Iterator[_Row]:
    for row in frame.toLocalIterator():
        named: Values | None = json.loads(row["new_values"]) if row["new_values"] is not None else None
        unavailable = tuple(row["unavailable_columns"] or ())
        values = named and {name: value for name, value in named.items() if name not in unavailable}
        change = RowChange(
            table=row["table_name"],
            key=row["keys"] or "",
            mod_type=ModType(row["change_kind"].upper()),
            new_values=values,
            unavailable=unavailable,
            previous_key=row["previous_keys"],
            is_whole_row=row["is_whole_row"] or bool(unavailable),
        )
        nulls = tuple(name for name in unavailable if name in (named or {}))
        yield _Row(row["ordinal"], change, row["order_key"] or "", nulls)


def _completed(spark: SparkSession, ordered: DataFrame, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    columns = list(zip(*rows, strict=True))
    done = spark.createDataFrame(
        pa.table(dict(zip(_COMPLETED.names, columns, strict=True)), _COMPLETED).to_pandas(),
        "done_ordinal bigint, done_values string, done_unavailable array<string>",
    )
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
