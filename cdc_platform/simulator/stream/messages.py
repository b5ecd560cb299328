"""Records of a change stream with mutable key ranges as rows with messages, the same in both dialects.

They have the type `google.spanner.v1.ChangeStreamRecord`: a column of that PROTO in GoogleSQL, and in
PostgreSQL bytes of another function, `spanner.read_proto_bytes_STREAM`.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import count, groupby
from typing import Any, Final, TypeAlias

from cdc_platform.simulator.history.history import History
from cdc_platform.simulator.history.moving_keys import ChangeKind, PartitionChange
from cdc_platform.simulator.history.schema import SimColumn
from cdc_platform.simulator.history.transactions import Mod, Row
from cdc_platform.simulator.stream.records import HIGH, DataRecord, data_records
from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform.simulator.wire.values import to_proto, value_writer
from cdc_platform.simulator.wire.wire import string_value

PartitionRow: TypeAlias = tuple[int, int, bytes]
"""Serial number of a partition, commit timestamp, and record as the value of a row."""

_MESSAGE: Final = "google.spanner.v1.ChangeStreamRecord"
_MOD_NAMES: Final = tuple(mod.name for mod in Mod)
_TOKENS_TOGETHER: Final = 3


def message_type(dialect: Dialect, function: str) -> bytes:
    """Return the metadata of a query's result."""
    from google.cloud.spanner_v1.types import ResultSetMetadata, StructType, Type, TypeCode

    if dialect is Dialect.GOOGLESQL:
        of_type = Type(code=TypeCode.PROTO, proto_type_fqn=_MESSAGE)
        field = StructType.Field(name="ChangeRecord", type_=of_type)
    else:
        field = StructType.Field(name=function, type_=Type(code=TypeCode.BYTES))
    metadata = ResultSetMetadata(row_type=StructType(fields=[field]))
    return bytes(ResultSetMetadata.serialize(metadata))


def start_rows(start_micros: int, tokens: Sequence[str]) -> list[bytes]:
    """Return the answer to the query without a token, with a few tokens per record."""
    return [
        _value(
            "partition_start_record",
            start_timestamp=_timestamp(start_micros),
            record_sequence=_sequence(0, number),
            partition_tokens=tokens[number : number + _TOKENS_TOGETHER],
        )
        for number in range(0, len(tokens), _TOKENS_TOGETHER)
    ]


def heartbeat_message(micros: int) -> bytes:
    """Return a heartbeat record as the value of a row."""
    return _value("heartbeat_record", timestamp=_timestamp(micros))


def block_messages(history: History, number: int) -> Iterator[PartitionRow]:
    """Yield the records of all partitions in a block, in order."""
    # Changes of partitions are numbered consecutively, so that those at one time are ordered, too.
    events: list[tuple[int, int, int, PartitionChange | DataRecord]] = [
        (change.moment.micros, 2 * change.moment.transactions, change.number, change)
        for change in history.partition_changes(number)
    ]
    for micros, same in groupby(history.block(number), key=lambda transaction: transaction.commit_micros):
        schema = history.schemas.at(micros)
        for turn, transaction in zip(count(1, 2), same, strict=False):
            records = data_records(transaction, schema)
            events.extend((micros, turn, record.number, record) for record in records)
    for micros, turn, low, item in sorted(events, key=lambda place: place[:3]):
        sequence = _sequence(turn, low)
        if isinstance(item, DataRecord):
            yield item.changes[0].partition, micros, _data_value(item, sequence)
        else:
            yield item.partition.serial, micros, _change_value(item, sequence)


def _sequence(turn: int, number: int) -> str:
    return f"{HIGH + turn:016x}-{number:08x}"


def _value(kind: str, **fields: Any) -> bytes:
    message = _record_class()()
    record = getattr(message, kind)
    record.SetInParent()
    record.MergeFrom(type(record)(**fields))
    return string_value(b64encode(message.SerializeToString()).decode())


@lru_cache(maxsize=1)
def _record_class() -> Any:
    from google.cloud.spanner_v1.types import ChangeStreamRecord

    return type(ChangeStreamRecord.pb(ChangeStreamRecord()))


def _timestamp(micros: int) -> Any:
    from google.protobuf.timestamp_pb2 import Timestamp  # type: ignore[import-untyped] # ships no types

    timestamp = Timestamp()
    timestamp.FromMicroseconds(micros)
    return timestamp


def _change_value(change: PartitionChange, sequence: str) -> bytes:
    moment, token, tokens = _timestamp(change.moment.micros), change.partition.token, change.other_tokens
    if change.kind is ChangeKind.START:
        fields = {"start_timestamp": moment, "partition_tokens": tokens}
        return _value("partition_start_record", record_sequence=sequence, **fields)
    if change.kind is ChangeKind.END:
        fields = {"end_timestamp": moment, "partition_token": token}
        return _value("partition_end_record", record_sequence=sequence, **fields)
    name, member = (
        ("move_in_events", "source_partition_token")
        if change.kind is ChangeKind.MOVE_IN
        else ("move_out_events", "destination_partition_token")
    )
    fields = {
        "commit_timestamp": moment,
        "partition_token": token,
        name: [{member: other} for other in tokens],
    }
    return _value("partition_event_record", record_sequence=sequence, **fields)


def _data_value(record: DataRecord, sequence: str) -> bytes:
    transaction = record.transaction
    return _value(
        "data_change_record",
        commit_timestamp=_timestamp(transaction.commit_micros),
        record_sequence=sequence,
        server_transaction_id=transaction.id,
        is_last_record_in_transaction_in_partition=record.is_last_in_partition,
        table=record.table.name,
        column_metadata=[_column(ordinal, column) for ordinal, column in record.shown_columns],
        mods=list(_mods(record)),
        mod_type=_MOD_NAMES[record.changes[0].mod],
        value_capture_type=record.capture.value,
        number_of_records_in_transaction=record.records,
        number_of_partitions_in_transaction=record.partitions,
        transaction_tag=transaction.tag,
        is_system_transaction=transaction.is_system,
    )


@lru_cache(maxsize=1024)
def _column(ordinal: int, column: SimColumn) -> Any:
    from google.cloud.spanner_v1.types import ChangeStreamRecord

    metadata = ChangeStreamRecord.DataChangeRecord.ColumnMetadata
    return metadata.pb(
        metadata(
            name=column.name,
            type_=to_proto(column.type),
            is_primary_key=column.is_primary_key,
            ordinal_position=ordinal,
        )
    )


def _mods(record: DataRecord) -> Iterator[dict[str, Any]]:
    columns = [column for _, column in record.shown_columns]
    keys = [index for index, column in enumerate(columns) if column.is_primary_key]
    new = [index for index, column in enumerate(columns) if not column.is_primary_key]
    old = [index for index in new if columns[index].slot in (record.old_slots or ())]
    for change in record.changes:
        yield {
            "keys": _mod_values(columns, keys, change.new or change.old or ()),
            "new_values": [] if change.new is None else _mod_values(columns, new, change.new),
            "old_values": [] if change.old is None else _mod_values(columns, old, change.old),
        }


def _mod_values(columns: Sequence[SimColumn], indexes: Sequence[int], row: Row) -> list[dict[str, Any]]:
    from google.protobuf.struct_pb2 import Value  # type: ignore[import-untyped] # ships no types

    def value(column: SimColumn) -> Any:
        cell = row[column.slot] if column.slot < len(row) else None
        return Value.FromString(value_writer(column.type)(cell))

    return [{"column_metadata_index": index, "value": value(columns[index])} for index in indexes]
