"""Decoder of PostgreSQL change records: one JSON object per row, with exactly one key for its kind."""

import ast
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.base.number_texts import whole_number
from cdc_platform.model.base.timestamps import from_rfc3339
from cdc_platform.model.stream.ordering_key import record_order
from cdc_platform.sources.spanner.client.wire import MISSHAPEN, required_text
from cdc_platform.sources.spanner.stream.decode import KIND_FIELDS
from cdc_platform.sources.spanner.stream.record_rows import (
    CHILDREN,
    DATA,
    HEARTBEAT,
    Child,
    RecordRow,
    check_columns,
    check_table,
    check_token,
    malformed_row,
    unreadable,
)

DATA_FIELD, HEARTBEAT_FIELD, CHILDREN_FIELD = KIND_FIELDS
MOD_FIELDS: Final = ("keys", "new_values", "old_values")

# Created once: `json.dumps` with arguments creates an encoder for each call.
_to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def decode_json_record(change_record: bytes) -> list[RecordRow]:
    """Return the record of one row of a change stream query, which is a protobuf value as bytes.

    Mods are written as JSON texts again: numbers keep their value, but maybe not their notation.
    A malformed data change record goes to quarantine if it names its transaction.

    Raises:
        RecordUnreadable: the value does not have the documented shape.
    """
    try:
        ((kind, record),) = json.loads(required_text(change_record)).items()
        if kind == DATA_FIELD:
            return [_data_row_or_fault(record)]
        if kind == HEARTBEAT_FIELD:
            return [RecordRow(HEARTBEAT, _micros(record["timestamp"]))]
        if kind == CHILDREN_FIELD:
            return [_children_row(record)]
    except MISSHAPEN as error:
        raise unreadable(change_record, error) from error
    raise unreadable(change_record, ValueError(f"unknown kind {kind!r}"))


def check_json_layout(fields: Any) -> None:
    """Check that a row has one column of JSON.

    Raises:
        RecordUnreadable: the row has other columns.
    """
    codes = [getattr(field.type_.code, "name", str(field.type_.code)) for field in fields or ()]
    if codes not in (["JSON"], ["STRING"]):
        raise RecordUnreadable(
            "The rows of the change stream have other columns than this version knows; update the "
            f"platform. Types: {codes}",
        )


def _data_row_or_fault(record: Mapping[str, Any]) -> RecordRow:
    try:
        return data_row(record)
    except MISSHAPEN as error:
        commit_micros = _micros(record["commit_timestamp"])
        transaction_id = _text(record["server_transaction_id"])
        table = record.get("table_name")
        table_name = table if isinstance(table, str) else None
        return malformed_row(commit_micros, transaction_id, table_name, _to_json(record), error)


def data_row(record: Mapping[str, Any]) -> RecordRow:
    """Return the row of a data change record.

    Raises:
        One of `MISSHAPEN`: the record does not have the documented shape.
    """
    sequence = _text(record["record_sequence"])
    return RecordRow(
        DATA,
        _micros(record["commit_timestamp"]),
        sequence,
        record_order(sequence),
        _text(record["server_transaction_id"]),
        _flag(record["is_last_record_in_transaction_in_partition"]),
        check_table(_text(record["table_name"])),
        _text(record["mod_type"]),
        _text(record["value_capture_type"]),
        _column_types(record["column_types"]),
        tuple([_json_text(mod.get(field)) for mod in record["mods"] for field in MOD_FIELDS]),
        whole_number(record["number_of_records_in_transaction"]),
        whole_number(record["number_of_partitions_in_transaction"]),
        None if record.get("transaction_tag") is None else _text(record["transaction_tag"]),
        _flag(record.get("is_system_transaction")),
    )


def _children_row(record: Mapping[str, Any]) -> RecordRow:
    sequence = _text(record["record_sequence"])
    return RecordRow(
        CHILDREN,
        _micros(record["start_timestamp"]),
        sequence,
        record_order(sequence),
        child_partitions=[_child(child) for child in record["child_partitions"]],
    )


def _child(child: Mapping[str, Any]) -> Child:
    parents = child["parent_partition_tokens"] or ()
    tokens = [ROOT_TOKEN if parent is None else _token(parent) for parent in parents]
    return check_token(_token(child["token"])), tokens


def _token(value: Any) -> str:
    """Return a token that is valid UTF-8, since the source is queried with it."""
    _text(value).encode()
    return _text(value)


def _json_text(part: Any) -> str | None:
    if part is None or isinstance(part, str):
        return part
    return _to_json(part)


def _column_types(columns: list[Mapping[str, Any]]) -> str:
    # Records of a table share their columns, and Python's own text of them is the cheapest cache key.
    return _column_types_of(repr(columns))


@lru_cache(maxsize=1024)
def _column_types_of(columns: str) -> str:
    declarations = [
        {
            "name": _text(column["name"]),
            "type": column["type"],
            "is_primary_key": _flag(column["is_primary_key"]),
            "ordinal_position": whole_number(column["ordinal_position"]),
        }
        for column in ast.literal_eval(columns)
    ]
    check_columns(declarations)
    return json.dumps(declarations, ensure_ascii=False)


@lru_cache(maxsize=1024)
def _micros(text: str) -> int:
    return from_rfc3339(text)


def _flag(value: Any) -> bool | None:
    if not isinstance(value, bool | None):
        message = f"true or false was expected, not {value!r}"
        raise TypeError(message)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        message = f"a text was expected, not {value!r}"
        raise TypeError(message)
    return value
