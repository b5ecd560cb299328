"""Change records that are messages, `google.spanner.v1.ChangeStreamRecord`, in both dialects.

Streams with partition_mode = MUTABLE_KEY_RANGE return them, as a column PROTO in GoogleSQL and as bytes in
PostgreSQL. In this mode keys move between partitions that continue. A move needs no action by the reader: the
log is in commit order, and no cut passes the partition that is furthest behind.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from cdc_platform.model.base.timestamps import MICROS_PER_S, is_moment
from cdc_platform.model.stream.ordering_key import record_order
from cdc_platform.sources.spanner.client.wire import MISSHAPEN, required_text
from cdc_platform.sources.spanner.stream.message_mods import mod_texts, quoted
from cdc_platform.sources.spanner.stream.record_rows import (
    DATA,
    END,
    EVENT,
    HEARTBEAT,
    START,
    Child,
    RecordRow,
    check_columns,
    check_table,
    check_token,
    malformed_row,
    unreadable,
)

MESSAGE_PREFIX: Final = "message "
"""Prefix of the text of a malformed data change record from a message; base64 follows."""

_MESSAGE_CODES: Final = (["PROTO"], ["BYTES"])


def has_messages(fields: Any) -> bool:
    """Return whether the only column of a query's result contains messages."""
    return [getattr(field.type_.code, "name", "") for field in fields or ()] in _MESSAGE_CODES


def decode_message(change_record: bytes, token: str) -> list[RecordRow]:
    """Return the record of one row of a change stream query, which is a protobuf value as bytes.

    A malformed data change record goes to quarantine if it names its transaction.

    Args:
        change_record: the row's only value.
        token: the partition that was queried.

    Raises:
        RecordUnreadable: The value does not have the documented shape.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # ships no types

    try:
        message = _message_class().FromString(b64decode(required_text(change_record), validate=True))
        kind = message.WhichOneof("record")
        record = getattr(message, str(kind))
        if kind == "data_change_record":
            return [_data_row_or_fault(record)]
        if kind == "heartbeat_record":
            return [RecordRow(HEARTBEAT, _micros(record, "timestamp"))]
        return [_PARTITION_ROWS[kind](record, token)]
    except (*MISSHAPEN, DecodeError) as error:
        raise unreadable(change_record, error) from error


def data_row_of_text(record_text: str) -> RecordRow:
    """Return the row of a data change record from the stored text of a malformed one.

    Raises:
        One of `MISSHAPEN`: the record does not have the documented shape.
    """
    message = _message_class()()
    message.data_change_record.MergeFromString(b64decode(record_text.removeprefix(MESSAGE_PREFIX)))
    return _data_row(message.data_change_record)


@lru_cache(maxsize=1)
def _message_class() -> Any:
    """Return the class of the messages, whose columns and mods stay bytes; see wire.py."""
    from google.protobuf import (  # type: ignore[import-untyped] # ships no types
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    original, pool = _column_class().DESCRIPTOR.file, descriptor_pool.DescriptorPool()
    for dependency in original.dependencies:
        pool.AddSerializedFile(dependency.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto.FromString(original.serialized_pb)
    data = next(part for part in file.message_type[0].nested_type if part.name == "DataChangeRecord")
    for field in data.field:
        if field.name in ("column_metadata", "mods"):
            field.type = field.TYPE_BYTES
            field.ClearField("type_name")
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.ChangeStreamRecord"))


@lru_cache(maxsize=1)
def _column_class() -> Any:
    from google.cloud.spanner_v1.types import ChangeStreamRecord

    metadata = ChangeStreamRecord.DataChangeRecord.ColumnMetadata
    return metadata.pb(metadata()).__class__


def _data_row_or_fault(record: Any) -> RecordRow:
    if not record.server_transaction_id:
        raise ValueError("a data change record has no transaction")
    try:
        return _data_row(record)
    except MISSHAPEN as error:
        commit_micros = _micros(record, "commit_timestamp")
        text = f"{MESSAGE_PREFIX}{b64encode(record.SerializeToString()).decode()}"
        return malformed_row(commit_micros, record.server_transaction_id, record.table or None, text, error)


def _data_row(record: Any) -> RecordRow:
    types, names = _columns(tuple(record.column_metadata))
    return RecordRow(
        DATA,
        _micros(record, "commit_timestamp"),
        record.record_sequence,
        _order(record.record_sequence),
        record.server_transaction_id,
        record.is_last_record_in_transaction_in_partition,
        check_table(record.table),
        _enum_name(record, "mod_type"),
        _enum_name(record, "value_capture_type"),
        types,
        mod_texts(record.mods, names),
        record.number_of_records_in_transaction,
        record.number_of_partitions_in_transaction,
        record.transaction_tag,
        record.is_system_transaction,
    )


def _start_row(record: Any, _token: str) -> RecordRow:
    children: list[Child] = [(check_token(token), []) for token in record.partition_tokens]
    return _partition_row(START, record, "start_timestamp", children)


def _end_row(record: Any, token: str) -> RecordRow:
    _check_partition(record, token)
    return _partition_row(END, record, "end_timestamp", None)


def _event_row(record: Any, token: str) -> RecordRow:
    _check_partition(record, token)
    moved_in: list[Child] = [(token, [event.source_partition_token]) for event in record.move_in_events]
    moved_out: list[Child] = [
        (event.destination_partition_token, [token]) for event in record.move_out_events
    ]
    return _partition_row(EVENT, record, "commit_timestamp", moved_in + moved_out)


_PARTITION_ROWS: Final[dict[str, Callable[[Any, str], RecordRow]]] = {
    "partition_start_record": _start_row,
    "partition_end_record": _end_row,
    "partition_event_record": _event_row,
}


def _partition_row(kind: str, record: Any, timestamp: str, partitions: list[Child] | None) -> RecordRow:
    sequence = record.record_sequence
    return RecordRow(
        kind, _micros(record, timestamp), sequence, _order(sequence), child_partitions=partitions
    )


def _check_partition(record: Any, token: str) -> None:
    if record.partition_token != token:
        raise ValueError(f"a record of partition {token!r} is about {record.partition_token!r}")


def _micros(record: Any, name: str) -> int:
    moment = getattr(record, name)
    micros = int(moment.seconds * MICROS_PER_S + moment.nanos // 1000)
    if not record.HasField(name) or not is_moment(micros):
        raise ValueError(f"{name} is not a moment: {moment.seconds} s")
    return micros


@lru_cache(maxsize=4096)
def _order(sequence: str) -> str:
    if not sequence:
        raise ValueError("a record has no sequence")
    return record_order(sequence)


def _enum_name(record: Any, name: str) -> str:
    """Return the name of a field's value, or its number if this version of the API does not have it."""
    return _name_of(record.DESCRIPTOR.fields_by_name[name].enum_type, getattr(record, name))


@lru_cache(maxsize=256)
def _name_of(enum: Any, number: int) -> str:
    value = enum.values_by_number.get(number)
    return str(number) if value is None else str(value.name)


# Records of a table share their columns.
@lru_cache(maxsize=1024)
def _columns(metadata: tuple[bytes, ...]) -> tuple[str, Mapping[int, str]]:
    """Return the columns of a record as JSON text, and their quoted names by index."""
    columns = [
        {
            "name": column.name,
            "type": _type_fields(column.type_),
            "is_primary_key": column.is_primary_key,
            "ordinal_position": column.ordinal_position,
        }
        for column in map(_column_class().FromString, metadata)
    ]
    check_columns(columns)
    return json.dumps(columns, ensure_ascii=False), {
        index: quoted(str(column["name"])) for index, column in enumerate(columns)
    }


def _type_fields(of_type: Any) -> dict[str, Any]:
    """Return a type in the form of the records of the other mode."""
    fields: dict[str, Any] = {"code": _enum_name(of_type, "code")}
    if of_type.HasField("array_element_type"):
        fields["array_element_type"] = _type_fields(of_type.array_element_type)
    if of_type.type_annotation:
        fields["type_annotation"] = _enum_name(of_type, "type_annotation")
    if of_type.proto_type_fqn:
        fields["proto_type_fqn"] = of_type.proto_type_fqn
    return fields
