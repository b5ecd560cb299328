"""Completion of small batches in this process, with values from earlier changes and from the tables."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.model.rows.changes import ChangeKind
from cdc_platform.model.rows.resolution import RowChange, RowId, StoredRows, Values, needed_rows, resolve
from cdc_platform.pipeline.completing.key_chains import CHANGE_COLUMNS, ChainChange
from cdc_platform.pipeline.completing.stored_rows import LACKS, Lookup
from cdc_platform.pipeline.versions.lake_frames import read_log
from cdc_platform.sources.json_codec import read_members
from cdc_platform.spark.frames.some_rows import changes_of, ids_frame

TAKEN: Final = (*CHANGE_COLUMNS, "ordering_key")
"""Columns of ordered changes, and of the log, that identify a change and its place in the order."""
_FOUND: Final = ("new_values", "is_whole_row", "unavailable_columns")

Completion = tuple[int, str, list[str]]
"""One completed change: its ordinal, its values in the log's form, and the columns that stay unresolved."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A change, its place in the log, and its place in the source's order."""

    ordinal: int
    logged: ChainChange
    ordering_key: str

    @property
    def change(self) -> RowChange:
        return self.logged.change


def complete_rows(lookup: Lookup, rows: pa.Table, ids: Collection[RowId]) -> pa.Table:
    """Return changes completed with the values that the source left out, as far as they are known.

    Args:
        lookup: the tables and the log, for values that no change of the batch has.
        rows: sound changes; for the rows `ids`, all changes and truncates of the batch.
        ids: the rows to follow, under all keys that they had or get.
    """
    followed = _as_rows(rows, ids)
    changes = [row.change for row in followed]
    stored = _look_up(lookup, changes)
    resolution = resolve(changes, stored, _departed(lookup, followed, stored))
    completions = [
        (row.ordinal, row.logged.values_of(change), list(change.unavailable))
        for row, change in zip(followed, resolution.changes, strict=True)
        if row.change.unavailable
    ]
    return with_completions(rows, completions)


def with_completions(rows: pa.Table, completions: Iterable[Completion]) -> pa.Table:
    """Return ordered changes with the completed values in place."""
    places = {ordinal: place for place, ordinal in enumerate(rows["ordinal"].to_pylist())}
    values, is_whole, unavailable = (rows[name].to_pylist() for name in _FOUND)
    for ordinal, text, unresolved in completions:
        place = places[ordinal]
        values[place], is_whole[place], unavailable[place] = text, not unresolved, unresolved or None
    for name, column in zip(_FOUND, (values, is_whole, unavailable), strict=True):
        index = rows.schema.get_field_index(name)
        field = rows.schema.field(index)
        rows = rows.set_column(index, field, pa.array(column, field.type))
    return rows


def row_ids(rows: pa.Table) -> set[RowId]:
    """Return the ids of the changed rows; changes without a table or key have none."""
    pairs = zip(rows["table_name"].to_pylist(), rows["keys"].to_pylist(), strict=True)
    return {(table, key) for table, key in pairs if table is not None and key is not None}


def links_of(rows: pa.Table) -> list[tuple[RowId, RowId]]:
    """Return pairs of new and old row ids, one for each key change."""
    names = ("table_name", "keys", "previous_keys")
    changes = zip(*(rows[name].to_pylist() for name in names), strict=True)
    return [((table, key), (table, former)) for table, key, former in changes if former is not None]


def _as_rows(rows: pa.Table, ids: Collection[RowId]) -> list[_Row]:
    """Return the changes of some rows, and the truncates of their tables, in the order of the log."""
    row_ids, tables = set(ids), {table for table, _ in ids}
    parsed = [
        _Row(line["ordinal"], ChainChange.of(line), line["ordering_key"] or "")
        for line in rows.select(TAKEN).to_pylist()
        if (line["table_name"], line["keys"]) in row_ids
        or (line["change_kind"] == ChangeKind.TRUNCATE and line["table_name"] in tables)
    ]
    return sorted(parsed, key=lambda row: row.ordinal)


def _look_up(lookup: Lookup, changes: Sequence[RowChange]) -> StoredRows:
    """Return the stored values of the rows that may have a missing value; None if a row does not exist.

    Values that are themselves unresolved, which the table has as NULL, are left out.
    """
    columns, keys = defaultdict[str, set[str]](set), defaultdict[str, list[str]](list)
    for change in changes:
        columns[change.table].update(change.unavailable)
    needed = needed_rows(changes)
    for table, key in sorted(needed):
        keys[table].append(key)
    lookup = replace(lookup, columns=columns)
    values: dict[RowId, Values | None] = dict.fromkeys(needed)
    doubtful: list[RowId] = []
    for table, table_keys in keys.items():
        frame = F.broadcast(lookup.spark.createDataFrame(pa.table({"keys": table_keys})))
        rows = lookup.rows(table, frame)
        for row in rows.collect() if rows is not None else ():
            values[table, row["keys"]] = read_members(row["new_values"])
            if row[LACKS]:
                doubtful.append((table, row["keys"]))
    return _without_unresolved(lookup, values, doubtful)


def _without_unresolved(lookup: Lookup, stored: StoredRows, doubtful: Sequence[RowId]) -> StoredRows:
    if not doubtful:
        return stored
    unresolved = lookup.unresolved(ids_frame(lookup.spark, doubtful))
    unknown = {((row[0], row[1]), row[2]) for row in unresolved.collect()}
    return {
        row_id: values and {name: value for name, value in values.items() if (row_id, name) not in unknown}
        for row_id, values in stored.items()
    }


def _departed(lookup: Lookup, rows: Sequence[_Row], stored: StoredRows) -> Mapping[RowId, Values]:
    """Return the last values, from the log, of rows that gave up their keys in an earlier cycle.

    That happens without transaction metadata, when the halves of a key change come in different cycles.
    """
    movers = _movers(rows, stored)
    if not movers:
        return {}
    ids, tables = ids_frame(lookup.spark, movers), {table for table, _ in movers}
    log = changes_of(read_log(lookup.pipeline, lookup.spark), ids, tables)
    former = _as_rows(log.select(*TAKEN).toArrow(), movers)
    departed: dict[RowId, Values] = {}
    for row_id, ordering_key in movers.items():
        changes = [
            replace(row.change, may_move=True)
            for row in former
            if row.ordering_key < ordering_key
            and row.change.table == row_id[0]
            and row.change.key in ("", row_id[1])
        ]
        departed |= resolve(changes, {}).departed
    return departed


def _movers(rows: Sequence[_Row], stored: StoredRows) -> Mapping[RowId, str]:
    """Return the former keys whose rows are neither in these changes nor in the tables.

    The value is the place in the source's order at which the row moved to another key.
    """
    movers, visited = dict[RowId, str](), set[RowId]()
    for row in rows:
        previous = row.change.previous_id
        is_known = previous is None or previous in visited or stored.get(previous) is not None
        if previous is not None and row.change.unavailable and not is_known:
            movers.setdefault(previous, row.ordering_key)
        visited.add(row.change.row_id)
    return movers
