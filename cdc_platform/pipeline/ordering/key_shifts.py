"""Key changes of several rows in one transaction, among the records that enter the log.

A source may state of each update that it may change the key. So a window is searched in Arrow for keys that
several events of one transaction write or remove; there are few, and only their events become objects.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.lake.commits.filters import all_of, between, equals, is_any
from cdc_platform.model.base.stored_names import LOG, RAW
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.rows.key_shifts import KeyEvent, shifted_orders
from cdc_platform.model.stream.events import ADDRESS
from cdc_platform.model.stream.records import ModType, RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.addresses import read_notes
from cdc_platform.spark.frames.table_frames import local_frame

_HALVES: Final = '"UPDATE-(DELETE|INSERT)"'
_OTHERS: Final = pa.array([ModType.INSERT.value, ModType.DELETE.value])
_SELECTED: Final = (
    *("kind", "record_timestamp", "record_sequence", "record_order", "server_transaction_id"),
    *("table_name", "mod_type", "mods.keys", "event.fault", "event.metadata"),
)
_KEY: Final = ("transaction_id", "table", "keys")
_KEY_EVENTS: Final = pa.schema([(name, pa.string()) for name in (*_KEY, "event_id")])
_LOGGED: Final = ("transaction_id", "record_id", "ordering_key", "commit_timestamp")
_MOVED: Final = pa.schema([("moved_event", pa.string()), ("moved_order", pa.string())])
_MAX_BOUND: Final = 200
"""Values of a filter by which Iceberg skips files; it binds each one of more, and skips nothing."""


@dataclass(frozen=True)
class _Keys:
    """Keys that events change, and their transactions."""

    transactions: pa.Array
    keys: pa.Array

    @classmethod
    def of(cls, events: pa.Table) -> "_Keys":
        """Return the keys and the transactions of some events."""
        return cls(*(events[name].unique() for name in ("transaction_id", "keys")))

    def among(self, batch: pa.RecordBatch) -> pa.Array:
        """Return which raw records may have one of the keys in one of the transactions."""
        is_theirs = pc.is_in(batch["server_transaction_id"], value_set=self.transactions)
        return pc.and_(is_theirs, pc.is_in(_keys(batch), value_set=self.keys))

    def in_transactions(self, column: str) -> BooleanExpression:
        """Return a filter of rows that may belong to one of the transactions."""
        is_narrow = len(self.transactions) <= _MAX_BOUND
        return is_any(column, self.transactions.to_pylist()) if is_narrow else AlwaysTrue()


def with_shifted_keys(pipeline: Pipeline, records: DataFrame, window: str, begin_micros: int) -> DataFrame:
    """Return raw records with new ordering keys for key changes of several rows in one transaction.

    Args:
        pipeline: the pipeline.
        records: raw records of an event source.
        window: filter of the same records.
        begin_micros: earliest time of these records.
    """
    new_orders = shifted_orders(_events_of_shared_keys(pipeline, window, begin_micros))
    if not new_orders:
        return records
    columns = [list(new_orders), list(new_orders.values())]
    shifts = F.broadcast(local_frame(records.sparkSession, pa.table(columns, schema=_MOVED)))
    matches = records.join(shifts, F.col("record_sequence") == F.col("moved_event"), "left")
    order = F.coalesce("moved_order", "record_order")
    return matches.withColumn("record_order", order).select(*records.columns)


def _events_of_shared_keys(pipeline: Pipeline, window: str, begin_micros: int) -> list[KeyEvent]:
    """Return the events of keys that several events of one transaction write or remove, each once."""
    halves = _as_table(batch.filter(_is_half(batch)) for batch in _addressed(pipeline, window))
    if not halves.num_rows:
        return []
    earlier_events = _EarlierEvents(pipeline, begin_micros)
    changed_keys = _Keys.of(halves)
    conditions = (window, earlier_events.records(changed_keys))
    events = chain.from_iterable(_key_events(pipeline, condition, changed_keys) for condition in conditions)
    counts = _as_table(events).group_by(_KEY).aggregate([("event_id", "count_distinct")])
    shared_keys = counts.filter(pc.greater(counts["event_id_count_distinct"], 1))
    if not shared_keys.num_rows:
        return []
    keys = _Keys.of(shared_keys)
    # Events that the log already has keep their ordering keys.
    of_keys = chain(_load(pipeline, window, keys), earlier_events.logged(keys))
    return list({event.event_id: event for event in of_keys}.values())


@dataclass(frozen=True)
class _EarlierEvents:
    """Events before a window, within the time in which events may repeat."""

    pipeline: Pipeline
    begin_micros: int

    @property
    def _moments(self) -> tuple[str, str]:
        before_micros = self.begin_micros - 1
        since_micros = self.pipeline.capabilities.repeats_since_micros(before_micros)
        return to_datetime(since_micros).isoformat(), to_datetime(before_micros).isoformat()

    def records(self, keys: _Keys) -> BooleanExpression:
        """Return a filter of the raw records that may belong to the transactions of keys."""
        return all_of(
            equals("kind", RecordKind.DATA_CHANGE.value),
            between("record_timestamp", *self._moments),
            keys.in_transactions("server_transaction_id"),
        )

    def logged(self, keys: _Keys) -> Iterator[KeyEvent]:
        """Yield the events of keys that the log has, with their ordering keys in it."""
        events = {
            f"{event.transaction_id}/{event.event_id}": event
            for event in _load(self.pipeline, self.records(keys), keys)
        }
        if not events:
            return
        of_them = all_of(between("commit_timestamp", *self._moments), keys.in_transactions("transaction_id"))
        log = (
            self.pipeline.lake.system_table(LOG).scan(row_filter=of_them, selected_fields=_LOGGED).to_arrow()
        )
        for row in log.filter(pc.is_in(log["record_id"], pa.array(events, pa.string()))).to_pylist():
            yield replace(events[row["record_id"]], logged_order=row["ordering_key"])


def _load(pipeline: Pipeline, condition: str | BooleanExpression, keys: _Keys) -> Iterator[KeyEvent]:
    for batch in _key_events(pipeline, condition, keys):
        for row in batch.to_pylist():
            event = _as_event(row)
            if event is not None:
                yield event


def _key_events(
    pipeline: Pipeline, condition: str | BooleanExpression, keys: _Keys
) -> Iterator[pa.RecordBatch]:
    """Yield the raw records that write or remove rows of changed keys in the same transactions."""
    for batch in _addressed(pipeline, condition):
        is_other = pc.is_in(batch["mod_type"], value_set=_OTHERS)
        yield batch.filter(pc.and_(keys.among(batch), pc.or_(_is_half(batch), is_other)))


def _addressed(pipeline: Pipeline, condition: str | BooleanExpression) -> Iterator[pa.RecordBatch]:
    """Yield the usable raw records that have the addresses of their rows."""
    scan = pipeline.lake.system_table(RAW).scan(row_filter=condition, selected_fields=_SELECTED)
    for batch in scan.to_arrow_batch_reader():
        sound = batch.filter(pc.is_null(pc.struct_field(batch["event"], "fault")))
        if sound.num_rows:
            yield sound.filter(_has_address(sound))


def _as_table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return what identifies the events of raw records."""
    return pa.Table.from_batches(
        [
            pa.RecordBatch.from_arrays(
                [batch["server_transaction_id"], batch["table_name"], _keys(batch), batch["record_sequence"]],
                schema=_KEY_EVENTS,
            )
            for batch in batches
        ],
        _KEY_EVENTS,
    )


def _has_address(batch: pa.RecordBatch) -> pa.Array:
    return pc.fill_null(pc.match_substring(_metadata(batch), f'"{ADDRESS}"'), False)


def _is_half(batch: pa.RecordBatch) -> pa.Array:
    return pc.fill_null(pc.match_substring_regex(_metadata(batch), _HALVES), False)


def _metadata(batch: pa.RecordBatch) -> pa.Array:
    return pc.struct_field(batch["event"], "metadata")


def _keys(batch: pa.RecordBatch) -> pa.Array:
    return pc.struct_field(pc.list_element(batch["mods"], 0), "keys")


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
