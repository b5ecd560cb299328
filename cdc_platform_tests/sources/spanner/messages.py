"""Change records that are messages: made for a decoder, and as the stock client reads them."""

from base64 import b64decode, b64encode
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from google.cloud.spanner_v1.types import ChangeStreamRecord
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped] # ships no types

from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform_tests.sources.spanner.fake_server import to_value

COMMIT: Final = datetime(2026, 11, 21, 6, 0, 1, 1, tzinfo=UTC)
SEQUENCE: Final = "963d1af435fb3e79-00000002"
PLACED: Final = {"record_sequence": SEQUENCE}
ORDER: Final = "963d1af435fb3e79" + "2".zfill(16)
COLUMNS: Final = [
    {"name": "Id", "type_": {"code": "INT64"}, "is_primary_key": True, "ordinal_position": 1},
    {"name": "n", "type_": {"code": "NUMERIC", "type_annotation": "PG_NUMERIC"}, "ordinal_position": 3},
    {
        "name": "a",
        "type_": {"code": "ARRAY", "array_element_type": {"code": "PROTO", "proto_type_fqn": "x.Y"}},
        "ordinal_position": 2,
    },
]


def message_of(**record: Any) -> bytes:
    """Return a record as the bytes of its message."""
    return bytes(ChangeStreamRecord.serialize(ChangeStreamRecord(**record)))


def value_of(**record: Any) -> bytes:
    """Return a record as the value of a row."""
    return message_value(message_of(**record))


def message_value(message: bytes) -> bytes:
    """Return the bytes of a message as the value of a row."""
    return bytes(to_value(b64encode(message).decode()).SerializeToString())


def data_record(**changes: Any) -> dict[str, Any]:
    """Return the fields of a data change record."""
    values = [
        {"column_metadata_index": 2, "value": ["cHI=", None]},
        {"column_metadata_index": 1, "value": "1.50"},
    ]
    mod = {"keys": [{"column_metadata_index": 0, "value": "1"}], "new_values": values}
    fields = {"commit_timestamp": COMMIT, "record_sequence": SEQUENCE, "server_transaction_id": "t1"}
    fields |= {"table": "accounts", "column_metadata": COLUMNS, "mods": [mod], "mod_type": "INSERT"}
    fields |= {"value_capture_type": "NEW_ROW", "number_of_records_in_transaction": 2}
    return fields | {"number_of_partitions_in_transaction": 1, "transaction_tag": "tag", **changes}


def message_record(value: bytes, dialect: Dialect) -> dict[str, Any]:
    """Return a record that the stock client has read, in the form of PostgreSQL's JSON records.

    The client leaves BYTES in base64.
    """
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
