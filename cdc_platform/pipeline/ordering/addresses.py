"""Lookup of row keys for deletes that identify their rows only by address."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from functools import partial
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.quarantine import ReplayMark, load_quarantine, mark_replayed
from cdc_platform.model.base.stored_names import QUARANTINE, RAW
from cdc_platform.model.base.stored_texts import parse_stored, read_stored, understanding
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.schema.observed_columns import DATABASE
from cdc_platform.model.stream.events import ADDRESS, ADDRESS_ONLY, ORDERING_KEY, AddressedDelete
from cdc_platform.model.stream.quarantined_records import QuarantinedRecord, ReplaySource
from cdc_platform.model.stream.records import ModType, RecordKind, ValueCaptureType
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.spark.frames.table_frames import local_frame

_SELECTED: Final = (
    *("kind", "record_timestamp", "record_sequence", "table_name"),
    *("event.fault", "event.metadata"),
)
_KEYS: Final = pa.schema(
    [("found_event", pa.string()), ("found_keys", pa.string()), ("found_order", pa.string())]
)
_DELETES: Final = pa.schema(
    [(name, pa.string()) for name in ("event_id", "of_table", "address", "ordering_key", "of_database")]
)

# Oracle does not distinguish names by case. See CHANGE_KIND for why this is not `lower`.
_SMALL_LETTERS: Final = f"'{ascii_uppercase}', '{ascii_lowercase}'"
_IS_SAME_DATABASE: Final = f"translate(database, {_SMALL_LETTERS}) = translate(of_database, {_SMALL_LETTERS})"


def with_keys_by_address(pipeline: Pipeline, records: DataFrame, raw: DataFrame, window: str) -> DataFrame:
    """Return raw records with the row's key added to deletes that only have an address.

    The row is that of the newest event at the address before the delete, in the same database. If there is
    none, or if that event is a delete itself, the record remains a fault.

    Args:
        pipeline: the pipeline.
        records: raw records of an event source.
        raw: all raw records.
        window: filter of the same records as `records`.
    """
    deletes = _addressed_deletes(pipeline, window)
    keys = _find_keys(raw, deletes) if deletes else {}
    if not keys:
        return records
    rows = [
        (delete.event_id, keys[delete.event_id], delete.ordering_key)
        for delete in deletes
        if delete.event_id in keys
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    key_frame = F.broadcast(local_frame(raw.sparkSession, pa.table(columns, schema=_KEYS)))
    is_same = (F.col("record_sequence") == F.col("found_event")) & F.col("event.fault").startswith(
        ADDRESS_ONLY
    )
    matches = records.join(key_frame, is_same, "left")
    return matches.withColumns(_as_delete()).select(*records.columns)


def _addressed_deletes(pipeline: Pipeline, window: str) -> list[AddressedDelete]:
    """Return the deletes of a window without a key; needs no Spark."""
    scan = pipeline.lake.system_table(RAW).scan(row_filter=window, selected_fields=_SELECTED)
    deletes: dict[str, AddressedDelete] = {}
    for batch in scan.to_arrow_batch_reader():
        for row in _faulty(pa.Table.from_batches([batch])):
            delete = _as_addressed(row)
            if delete is not None:
                deletes[delete.event_id] = delete
    return list(deletes.values())


def read_notes(event_id: str, metadata: str | None) -> Mapping[str, Any]:
    """Return the source's metadata of an event from its raw record.

    Raises:
        LakeDamaged: the metadata are not a JSON object.
    """
    parse = partial(parse_stored, shape=dict[str, Any])
    return read_stored(parse, metadata or "{}", RAW, f"the event {event_id}")


def _as_addressed(row: Mapping[str, Any]) -> AddressedDelete | None:
    """Return the delete in a raw record, None if the record lacks facts."""
    notes = read_notes(row["record_sequence"], row["event"]["metadata"])
    address, ordering_key, table = notes.get(ADDRESS), notes.get(ORDERING_KEY), row.get("table_name")
    if not (address and ordering_key and table):
        return None
    database = str(notes.get(DATABASE) or "")
    return AddressedDelete(row["record_sequence"], table, str(address), str(ordering_key), database)


def call_waiting(pipeline: Pipeline, raw: DataFrame, new_records: DataFrame) -> int:
    """Request the replay of quarantined deletes whose rows are among new records; return their number.

    The next cycle replays their texts. A delete that would stay in quarantine is not replayed.
    """
    records_by_event: dict[str, list[QuarantinedRecord]] = {}
    deletes: dict[str, AddressedDelete] = {}
    for record in load_quarantine(pipeline.lake):
        delete = _addressed_of(record)
        if delete is not None:
            records_by_event.setdefault(delete.event_id, []).append(record)
            deletes[delete.event_id] = delete
    # There are many raw records: they are only searched if a new record belongs to such a row.
    event_ids = _find_keys(new_records, list(deletes.values())) if deletes else {}
    keys = _find_keys(raw, [deletes[event_id] for event_id in event_ids]) if event_ids else {}
    cycle = read_mark(pipeline.lake.system_table(RAW)).cycle
    mark = ReplayMark(clock_micros(), cycle, ReplaySource.TEXT)
    marks = {record.identity: mark for event_id in keys for record in records_by_event[event_id]}
    mark_replayed(pipeline.lake, marks)
    return len(marks)


def _addressed_of(record: QuarantinedRecord) -> AddressedDelete | None:
    if not record.reason.startswith(ADDRESS_ONLY):
        return None
    with understanding(QUARANTINE, f"record {record.name}"):
        return _as_addressed(record.raw_record)


def _faulty(batch: pa.Table) -> list[dict[str, Any]]:
    fault = pc.struct_field(batch["event"].combine_chunks(), "fault")
    rows: list[dict[str, Any]] = batch.filter(
        pc.fill_null(pc.starts_with(fault, ADDRESS_ONLY), False)
    ).to_pylist()
    return rows


def _find_keys(raw: DataFrame, deletes: Sequence[AddressedDelete]) -> dict[str, str]:
    """Return the keys that were found, by the event that needs them."""
    columns = [list(column) for column in zip(*map(astuple, deletes), strict=True)]
    deletes_frame = F.broadcast(local_frame(raw.sparkSession, pa.table(columns, schema=_DELETES)))
    events = raw.where(
        (F.col("kind") == RecordKind.DATA_CHANGE.value)
        & F.col("event.fault").isNull()
        & F.col("table_name").isin(sorted({delete.table for delete in deletes}))
    ).select(
        "table_name",
        "mod_type",
        "record_order",
        F.get_json_object("event.metadata", f"$.{ADDRESS}").alias("at"),
        F.get_json_object("event.metadata", f"$.{DATABASE}").alias("database"),
        F.expr("mods[0].keys").alias("keys"),
    )
    is_before = (
        (F.col("table_name") == F.col("of_table"))
        & (F.col("at") == F.col("address"))
        & F.expr(f"of_database = '' OR coalesce({_IS_SAME_DATABASE}, true)")
        & (F.col("record_order") < F.col("ordering_key"))
    )
    newest_events = (
        events.join(deletes_frame, is_before)
        .groupBy("event_id")
        .agg(F.max_by(F.struct("mod_type", "keys"), "record_order").alias("newest"))
    )
    living_rows = newest_events.where(F.col("newest.mod_type") != ModType.DELETE.value)
    return {row["event_id"]: row["newest"]["keys"] for row in living_rows.collect()}


def _as_delete() -> dict[str, Column]:
    is_found = F.col("found_event").isNotNull()
    nothing = F.lit(None).cast("string")
    mod = F.struct(
        F.col("found_keys").alias("keys"), nothing.alias("new_values"), nothing.alias("old_values")
    )
    replacements = {
        "mod_type": F.lit(ModType.DELETE.value),
        "value_capture_type": F.lit(ValueCaptureType.NEW_ROW.value),
        "record_order": F.col("found_order"),
        "mods": F.array(mod),
        "event": F.col("event").withField("fault", nothing),
    }
    return {name: F.when(is_found, value).otherwise(F.col(name)) for name, value in replacements.items()}
