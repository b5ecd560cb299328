"""Key changes of several rows in one transaction, among the records that enter the log."""

import json
from collections.abc import Collection, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.filters import all_of, between, equals, is_any
from cdc_platform.lake.lake import RAW
from cdc_platform.model.addresses import ADDRESS
from cdc_platform.model.key_shifts import Half, shifted_orders
from cdc_platform.model.records import ModType, RecordKind
from cdc_platform.model.timestamps import from_datetime, to_datetime
from cdc_platform.pipeline.pipeline import Pipeline

_HALVES: Final = '"UPDATE-(DELETE|INSERT)"'
_SELECTED: Final = (
    *("kind", "record_timestamp", "record_sequence", "record_order", "server_transaction_id"),
    *("table_name", "mod_type", "mods", "event.fault", "event.metadata"),
)
_MOVED: Final = pa.schema([("moved_event", pa.string()), ("moved_order", pa.string())])


def with_shifted_keys(pipeline: Pipeline, records: DataFrame, window: str) -> DataFrame:
    """Return raw records with the order keys of those that move keys of several rows in one transaction.

    Args:
        pipeline: the pipeline.
        records: raw records of a source that hands out events.
        window: filter of the same records.
    """
    rows = list(_rows(pipeline, window))
    ours = [half for row in rows if (half := _as_half(row)) is not None]
    if not ours:
        return records
    begin_micros = min(from_datetime(row["record_timestamp"]) for row in rows)
    moved = shifted_orders(ours, _earlier(pipeline, {half.transaction_id for half in ours}, begin_micros))
    if not moved:
        return records
    columns = [list(moved), list(moved.values())]
    known = F.broadcast(records.sparkSession.createDataFrame(pa.table(columns, schema=_MOVED)))
    joined = records.join(known, F.col("record_sequence") == F.col("moved_event"), "left")
    order = F.coalesce("moved_order", "record_order")
    return joined.withColumn("record_order", order).select(*records.columns)


def _earlier(pipeline: Pipeline, transactions: Collection[str], before_micros: int) -> list[Half]:
    """Return the halves of transactions that ticks have read for as long as events may come again."""
    since_micros = pipeline.traits.repeats_since_micros(before_micros)
    bounds = (to_datetime(micros).isoformat() for micros in (since_micros, before_micros - 1))
    near = between("record_timestamp", *bounds)
    of_them = is_any("server_transaction_id", set(transactions))
    condition = all_of(equals("kind", RecordKind.DATA_CHANGE.value), near, of_them)
    return [half for row in _rows(pipeline, condition) if (half := _as_half(row)) is not None]


def _rows(pipeline: Pipeline, condition: Any) -> Iterator[dict[str, Any]]:
    scan = pipeline.lake.system_table(RAW).scan(row_filter=condition, selected_fields=_SELECTED)
    for batch in scan.to_arrow_batch_reader():
        metadata = pc.struct_field(batch.column("event"), "metadata")
        is_half = pc.fill_null(pc.match_substring_regex(metadata, _HALVES), False)
        yield from batch.filter(is_half).to_pylist()


def _as_half(row: dict[str, Any]) -> Half | None:
    """Return the half that a raw record is, None where it does not tell the address of its row."""
    address = json.loads(row["event"]["metadata"]).get(ADDRESS)
    if not address or row["event"]["fault"] is not None:
        return None
    return Half(
        event_id=row["record_sequence"],
        table=row["table_name"],
        transaction_id=row["server_transaction_id"],
        keys=row["mods"][0]["keys"],
        address=str(address),
        order_key=row["record_order"],
        is_removal=row["mod_type"] == ModType.DELETE.value,
    )
