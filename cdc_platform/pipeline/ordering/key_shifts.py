"""Key changes of several rows in one transaction, among the records that enter the log."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.catalog.lake import LOG, RAW
from cdc_platform.lake.commits.filters import all_of, between, equals, is_any
from cdc_platform.model.base.timestamps import from_datetime, to_datetime
from cdc_platform.model.rows.key_shifts import KeyEvent, shifted_orders
from cdc_platform.model.stream.events import ADDRESS
from cdc_platform.model.stream.records import ModType, RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.addresses import read_notes

_HALVES: Final = '"UPDATE-(DELETE|INSERT)"'
_SELECTED: Final = (
    *("kind", "record_timestamp", "record_sequence", "record_order", "server_transaction_id"),
    *("table_name", "mod_type", "mods", "event.fault", "event.metadata"),
)
_LOGGED: Final = ("transaction_id", "record_id", "ordering_key", "commit_timestamp")
_MOVED: Final = pa.schema([("moved_event", pa.string()), ("moved_order", pa.string())])


@dataclass
class _Changes:
    """The changes of keys in a window: their transactions, the keys, and the start of the window.

    ``has_addresses`` means that some event has the address of its row.
    """

    transactions: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    begin_micros: int | None = None
    has_addresses: bool = False


def with_shifted_keys(pipeline: Pipeline, records: DataFrame, window: str) -> tuple[DataFrame, bool]:
    """Return raw records with new ordering keys for key changes of several rows in one transaction.

    Also returns whether an event of the window has the address of its row.

    Args:
        pipeline: the pipeline.
        records: raw records of an event source.
        window: filter of the same records.
    """
    changes = _key_changes(pipeline, window)
    if not changes.transactions:
        return records, changes.has_addresses
    # Events that the log already has keep their ordering keys.
    events = {event.event_id: event for event in _events(pipeline, window, changes)}
    events |= {event.event_id: event for event in _earlier(pipeline, changes)}
    moved = shifted_orders(events.values())
    if not moved:
        return records, changes.has_addresses
    columns = [list(moved), list(moved.values())]
    shifts = F.broadcast(records.sparkSession.createDataFrame(pa.table(columns, schema=_MOVED)))
    joined = records.join(shifts, F.col("record_sequence") == F.col("moved_event"), "left")
    order = F.coalesce("moved_order", "record_order")
    return joined.withColumn("record_order", order).select(*records.columns), changes.has_addresses


def _key_changes(pipeline: Pipeline, window: str) -> _Changes:
    changes = _Changes()
    for batch in _batches(pipeline, window):
        first_micros = from_datetime(pc.min(batch.column("record_timestamp")).as_py())
        changes.begin_micros = min(first_micros, changes.begin_micros or first_micros)
        changes.has_addresses |= bool(pc.any(_states(batch, f'"{ADDRESS}"')).as_py())
        halves = batch.filter(_states(batch, _HALVES))
        changes.transactions.update(halves.column("server_transaction_id").to_pylist())
        changes.keys.update(_keys(halves).to_pylist())
    return changes


def _earlier(pipeline: Pipeline, changes: _Changes) -> Iterator[KeyEvent]:
    """Yield the events of the transactions that the log has, within the time in which events may repeat."""
    before_micros = (changes.begin_micros or 0) - 1
    bounds = (pipeline.capabilities.repeats_since_micros(before_micros), before_micros)
    moments = [to_datetime(micros).isoformat() for micros in bounds]
    condition = all_of(
        equals("kind", RecordKind.DATA_CHANGE.value),
        between("record_timestamp", *moments),
        is_any("server_transaction_id", changes.transactions),
    )
    events = list(_events(pipeline, condition, changes))
    if not events:
        return
    of_them = all_of(between("commit_timestamp", *moments), is_any("transaction_id", changes.transactions))
    log = pipeline.lake.system_table(LOG).scan(row_filter=of_them, selected_fields=_LOGGED).to_arrow()
    orders = dict(zip(*(log[name].to_pylist() for name in ("record_id", "ordering_key")), strict=True))
    for event in events:
        order = orders.get(f"{event.transaction_id}/{event.event_id}")
        if order is not None:
            yield replace(event, logged_order=order)


def _events(pipeline: Pipeline, condition: str | BooleanExpression, changes: _Changes) -> Iterator[KeyEvent]:
    """Yield the events that write or remove rows of the changed keys in the same transactions."""
    # Made once: there may be a million of them, and dozens of batches.
    transactions, keys, others = (
        pa.array(values, pa.string())
        for values in (changes.transactions, changes.keys, (ModType.INSERT.value, ModType.DELETE.value))
    )
    for batch in _batches(pipeline, condition):
        is_theirs = pc.is_in(batch.column("server_transaction_id"), value_set=transactions)
        is_theirs = pc.and_(is_theirs, pc.is_in(_keys(batch), value_set=keys))
        is_other = pc.is_in(batch.column("mod_type"), value_set=others)
        chosen = batch.filter(pc.and_(is_theirs, pc.or_(_states(batch, _HALVES), is_other)))
        for row in chosen.to_pylist():
            event = _as_event(row)
            if event is not None:
                yield event


def _batches(pipeline: Pipeline, condition: str | BooleanExpression) -> Iterator[pa.RecordBatch]:
    """Yield the usable raw records."""
    scan = pipeline.lake.system_table(RAW).scan(row_filter=condition, selected_fields=_SELECTED)
    for batch in scan.to_arrow_batch_reader():
        sound = batch.filter(pc.is_null(pc.struct_field(batch.column("event"), "fault")))
        if sound.num_rows:
            yield sound


def _states(batch: pa.RecordBatch, pattern: str) -> pa.Array:
    metadata = pc.struct_field(batch.column("event"), "metadata")
    return pc.fill_null(pc.match_substring_regex(metadata, pattern), False)


def _keys(batch: pa.RecordBatch) -> pa.Array:
    return pc.struct_field(pc.list_element(batch.column("mods"), 0), "keys")


def _as_event(row: dict[str, Any]) -> KeyEvent | None:
    """Return a raw record as an event of its key, None if it lacks the address of its row."""
    address = read_notes(row["record_sequence"], row["event"]["metadata"]).get(ADDRESS)
    if not address:
        return None
    return KeyEvent(
        event_id=row["record_sequence"],
        table=row["table_name"],
        transaction_id=row["server_transaction_id"],
        keys=row["mods"][0]["keys"],
        address=str(address),
        ordering_key=row["record_order"],
        is_removal=row["mod_type"] == ModType.DELETE.value,
    )
