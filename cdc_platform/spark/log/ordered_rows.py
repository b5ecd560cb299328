"""Small batches of ordered changes: their counts and rows, computed in this process without Spark."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.base.schemas import DELETION_MARKER_ROWS
from cdc_platform.model.base.timestamps import from_datetime
from cdc_platform.model.rows.keyless import UNNUMBERED_PREFIX, keys_text, row_of
from cdc_platform.model.rows.resolution import RowId
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.spark.log.order import BEGINS, UNSOUND, Incomplete, LogStats, TableStats

COUNTED: Final = (
    *("table_name", "change_kind", "commit_timestamp", "transaction_id", "mod_ordinal", "is_whole_row"),
    *("ordinal", UNSOUND),
)
OF_TRANSACTIONS: Final = ("records_in_transaction", "records_seen", BEGINS)

RowCopies = tuple[str, str]
"""A table without a key, and the digest of equal rows."""
_Row = Mapping[str, Any]


def measure_rows(changes: pa.Table) -> LogStats:
    """Return the counts of `measure` for a small result of `order_records`."""
    rows = changes.select([*COUNTED, *OF_TRANSACTIONS]).to_pylist()
    sound = [row for row in rows if not row[UNSOUND]]
    shorts = sorted(
        (row["transaction_id"], row["records_in_transaction"], row["records_seen"])
        for row in sound
        if row["records_seen"] != row["records_in_transaction"]
    )
    incomplete = Incomplete(*shorts[0]) if shorts else None
    return _as_stats(rows, sum(row[BEGINS] for row in sound), incomplete)


def measure_event_rows(changes: pa.Table) -> LogStats:
    """Return the counts of `count_events` for a small result of `order_events`."""
    rows = changes.select(COUNTED).to_pylist()
    return _as_stats(rows, len({row["transaction_id"] for row in rows if not row[UNSOUND]}))


def sound_rows(changes: pa.Table, cycle: int, schema: pa.Schema) -> pa.Table:
    """Return the rows of the change log of one cycle, in order, with the types of the log."""
    sound = changes.filter(pc.invert(changes[UNSOUND]))
    cycles = pa.repeat(pa.scalar(cycle, pa.int64()), sound.num_rows)
    return sound.append_column("cycle", cycles).select(schema.names).cast(schema)


def deletion_marker_rows(changes: pa.Table, cycle: int) -> pa.Table:
    """Return the rows of DELETION_MARKER_ROWS for the deletes of a cycle."""
    is_delete = pc.equal(changes["change_kind"], ChangeKind.DELETE.value)
    return sound_rows(changes.filter(is_delete), cycle, DELETION_MARKER_ROWS)


def unnumbered_few(changes: pa.Table) -> dict[str, set[str]]:
    """Return the same as `unnumbered_rows`, by table, for a small result of `order_events`."""
    rows = defaultdict[str, set[str]](set)
    is_unnumbered = pc.starts_with(changes["keys"], UNNUMBERED_PREFIX)
    for row in changes.filter(is_unnumbered).select(["table_name", "keys"]).to_pylist():
        rows[row["table_name"]].add(row_of(row["keys"]))
    return rows


def number_few(changes: pa.Table, stored_counts: Mapping[RowCopies, int]) -> pa.Table:
    """Return the same as `number_copies`, for a small result of `order_events`.

    Args:
        changes: changes, in order.
        stored_counts: number of equal rows before, by table and row.
    """
    counts = dict(stored_counts)
    keys: list[str] = []
    for row in changes.select(["table_name", "change_kind", "keys", UNSOUND]).to_pylist():
        table, key = row["table_name"], row["keys"]
        if row["change_kind"] == ChangeKind.TRUNCATE and not row[UNSOUND]:
            counts = {same_rows: count for same_rows, count in counts.items() if same_rows[0] != table}
        elif key is not None and key.startswith(UNNUMBERED_PREFIX):
            same_rows = (table, row_of(key))
            before, is_delete = counts.get(same_rows, 0), row["change_kind"] == ChangeKind.DELETE
            if not row[UNSOUND]:
                counts[same_rows] = before - 1 if is_delete else before + 1
            key = keys_text(same_rows[1], before if is_delete or row[UNSOUND] else before + 1)
        keys.append(key)
    place = changes.schema.get_field_index("keys")
    return changes.set_column(place, changes.schema.field(place), pa.array(keys, changes["keys"].type))


def incomplete_few(ordered: pa.Table, *, completes_log: bool) -> pa.Table:
    """Return the changes that `incomplete_changes` selects, for a small result of `order_events`.

    Args:
        ordered: changes.
        completes_log: whether every omitted value is completed; otherwise only those of inserted rows and of
            rows whose keys change.
    """
    changes = ordered.filter(pc.and_(lack_values(ordered), pc.invert(ordered[UNSOUND])))
    if completes_log:
        return changes
    is_insert = pc.equal(changes["change_kind"], ChangeKind.INSERT.value)
    return changes.filter(pc.or_(pc.is_valid(changes["previous_keys"]), is_insert))


def lack_values(changes: pa.Table) -> pa.ChunkedArray:
    """Return, for each change, whether it lacks values that the source omitted."""
    return pc.greater(pc.fill_null(pc.list_value_length(changes["unavailable_columns"]), 0), 0)


def ids_of(changes: pa.Table) -> list[RowId]:
    """Return the row of each change."""
    return list(zip(changes["table_name"].to_pylist(), changes["keys"].to_pylist(), strict=True))


def by_table(changes: pa.Table, column: str) -> Mapping[str, list[Any]]:
    """Return the values of a column of changes, by table, in order."""
    values = defaultdict[str, list[Any]](list)
    for table, value in zip(changes["table_name"].to_pylist(), changes[column].to_pylist(), strict=True):
        values[table].append(value)
    return values


def _as_stats(rows: Sequence[_Row], transactions: int, incomplete: Incomplete | None = None) -> LogStats:
    by_table: defaultdict[str | None, list[_Row]] = defaultdict(list)
    for row in rows:
        if not row[UNSOUND]:
            by_table[row["table_name"]].append(row)
    return LogStats(
        tables={name: _measure_table(changes) for name, changes in by_table.items() if name is not None},
        transactions=transactions,
        quarantined=sum(row[UNSOUND] and row["mod_ordinal"] == 0 for row in rows),
        next_ordinal=max((row["ordinal"] + 1 for row in rows), default=0),
        incomplete=incomplete,
    )


def _measure_table(sound: Iterable[_Row]) -> TableStats:
    rows = list(sound)
    return TableStats(
        changes=len(rows),
        partial_updates=sum(not row["is_whole_row"] for row in rows),
        truncates=sum(row["change_kind"] == ChangeKind.TRUNCATE for row in rows),
        first_micros=min((from_datetime(row["commit_timestamp"]) for row in rows), default=0),
    )
