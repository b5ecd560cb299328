"""Small batches of ordered changes: their counts and rows, computed in this process without Spark."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.base.schemas import DELETION_MARKER_ROWS
from cdc_platform.model.rows.keyless import UNNUMBERED_PREFIX, keys_text, row_of
from cdc_platform.model.rows.resolution import RowId
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.spark.log.order import BEGINS, UNSOUND, Incomplete, LogStats, to_stats

RowCopies = tuple[str, str]
"""A table without a key, and the digest of equal rows."""


def measure_rows(changes: pa.Table) -> LogStats:
    """Return the counts of `measure` for a small result of `order_records`."""
    sound = changes.filter(pc.invert(changes[UNSOUND]))
    short = sound.filter(pc.not_equal(sound["records_seen"], sound["records_in_transaction"]))
    shorts = short.select(["transaction_id", "records_in_transaction", "records_seen"]).to_pylist()
    incomplete = min((Incomplete(*row.values()) for row in shorts), default=None)
    return to_stats(_counts(changes), pc.sum(sound[BEGINS], min_count=0).as_py(), incomplete)


def measure_event_rows(changes: pa.Table) -> LogStats:
    """Return the counts of `count_events` for a small result of `order_events`."""
    sound = changes.filter(pc.invert(changes[UNSOUND]))
    return to_stats(_counts(changes), pc.count_distinct(sound["transaction_id"], "all").as_py())


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
            copies_before, is_delete = counts.get(same_rows, 0), row["change_kind"] == ChangeKind.DELETE
            if not row[UNSOUND]:
                counts[same_rows] = copies_before - 1 if is_delete else copies_before + 1
            key = keys_text(same_rows[1], copies_before if is_delete or row[UNSOUND] else copies_before + 1)
        keys.append(key)
    place = changes.schema.get_field_index("keys")
    return changes.set_column(place, changes.schema.field(place), pa.array(keys, changes["keys"].type))


def incomplete_few(changes: pa.Table, *, completes_log: bool) -> pa.Table:
    """Return the changes that `incomplete_changes` selects, for a small result of `order_events`.

    Unless ``completes_log``, these are only inserted rows and rows whose keys change.
    """
    incomplete_changes = changes.filter(pc.and_(lack_values(changes), pc.invert(changes[UNSOUND])))
    if completes_log:
        return incomplete_changes
    is_insert = pc.equal(incomplete_changes["change_kind"], ChangeKind.INSERT.value)
    return incomplete_changes.filter(pc.or_(pc.is_valid(incomplete_changes["previous_keys"]), is_insert))


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


def _counts(changes: pa.Table) -> list[dict[str, Any]]:
    """Return the aggregates of `count_changes`."""
    is_sound = pc.invert(changes[UNSOUND])
    is_truncate = pc.equal(changes["change_kind"], ChangeKind.TRUNCATE.value)
    micros = changes["commit_timestamp"].cast(pa.int64())
    columns = {
        "table_name": (changes["table_name"], ""),
        "changes": (is_sound, "sum"),
        "partial_updates": (pc.and_(is_sound, pc.invert(changes["is_whole_row"])), "sum"),
        "truncates": (pc.and_(is_sound, is_truncate), "sum"),
        "quarantined": (pc.and_(changes[UNSOUND], pc.equal(changes["mod_ordinal"], 0)), "sum"),
        "first_micros": (pc.if_else(is_sound, micros, None), "min"),
        "last_ordinal": (changes["ordinal"], "max"),
    }
    _, *aggregates = ((name, how) for name, (_, how) in columns.items())
    values = pa.table({name: column for name, (column, _) in columns.items()})
    counts: list[dict[str, Any]] = (
        values.group_by("table_name").aggregate(aggregates).rename_columns(list(columns)).to_pylist()
    )
    return counts
