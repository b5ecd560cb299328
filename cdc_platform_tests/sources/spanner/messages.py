"""Change records that are messages, in the form that PostgreSQL's JSON records have."""

from base64 import b64decode
from collections.abc import Iterable
from typing import Any

from google.cloud.spanner_v1.types import ChangeStreamRecord
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped] # ships no types

from cdc_platform.simulator.wire.simulator_settings import Dialect


def message_record(value: bytes, dialect: Dialect) -> dict[str, Any]:
    """Return a record of a query that the stock client has read: it leaves BYTES in base64."""
    data = value if dialect is Dialect.GOOGLESQL else b64decode(value)
    message = ChangeStreamRecord.pb(ChangeStreamRecord()).FromString(data)
    kind = message.WhichOneof("record")
    fields = _fields(getattr(message, kind))
    if kind == "data_change_record":
        record = message.data_change_record
        fields["table_name"] = fields.pop("table")
        fields["column_types"] = [_column(column) for column in record.column_metadata]
        fields["mods"] = [
            {name: _values(record, getattr(mod, name)) for name in ("keys", "new_values", "old_values")}
            for mod in record.mods
        ]
        del fields["column_metadata"]
    return {kind: fields}


def _fields(message: Any) -> dict[str, Any]:
    fields: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return fields


def _column(column: Any) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": MessageToDict(column.type_, preserving_proto_field_name=True),
        "is_primary_key": column.is_primary_key,
        "ordinal_position": column.ordinal_position,
    }


def _values(record: Any, values: Iterable[Any]) -> dict[str, Any]:
    named = {
        record.column_metadata[value.column_metadata_index].name: MessageToDict(value.value)
        for value in values
    }
    return dict(sorted(named.items()))
