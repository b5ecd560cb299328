"""Decoder of GoogleSQL change records, from the bytes of their values to rows of plain values.

The stock client decodes every timestamp and JSON text of a row into Python objects, which costs several times
as much as the rest of the read. This decoder keeps texts as they are and does not parse mods.
"""

import json
from functools import lru_cache
from typing import Any, Final

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.base.number_texts import whole_number
from cdc_platform.model.base.timestamps import from_rfc3339
from cdc_platform.model.stream.ordering_key import record_order
from cdc_platform.sources.spanner.client.wire import MISSHAPEN, boolean, items, required_text, text
from cdc_platform.sources.spanner.stream.record_rows import (
    CHILDREN,
    DATA,
    HEARTBEAT,
    MOD_PARTS,
    Child,
    ModTexts,
    RecordRow,
    check_columns,
    check_table,
    check_token,
    malformed_row,
    unreadable,
)

KIND_FIELDS: Final = ("data_change_record", "heartbeat_record", "child_partitions_record")
DATA_FIELDS: Final = (
    "commit_timestamp",
    "record_sequence",
    "server_transaction_id",
    "is_last_record_in_transaction_in_partition",
    "table_name",
    "column_types",
    "mods",
    "mod_type",
    "value_capture_type",
    "number_of_records_in_transaction",
    "number_of_partitions_in_transaction",
    "transaction_tag",
    "is_system_transaction",
)
_DATA_COUNT: Final = len(DATA_FIELDS)


def decode_change_record(change_record: bytes) -> list[RecordRow]:
    """Return the records of one row of a change stream query, which is a protobuf value as bytes.

    A malformed data change record goes to quarantine if it names its transaction.

    Raises:
        RecordUnreadable: the value does not have the documented shape.
    """
    rows: list[RecordRow] = []
    try:
        for record in items(change_record):
            data, heartbeats, children = items(record)
            rows.extend(map(_data_row_or_fault, items(data)))
            rows.extend(RecordRow(HEARTBEAT, _micros(items(heartbeat)[0])) for heartbeat in items(heartbeats))
            rows.extend(map(_children_row, items(children)))
    except MISSHAPEN as error:
        raise unreadable(change_record, error) from error
    return rows


def check_layout(fields: Any) -> None:
    """Check that the fields of a change record are where this module expects them.

    Additional fields after the documented ones are harmless.

    Raises:
        RecordUnreadable: a field is missing.
    """
    kinds = _struct_fields(fields[0]) if fields else ()
    names = tuple(kind.name for kind in kinds)
    data = tuple(field.name for field in _struct_fields(kinds[0])) if kinds else ()
    if names != KIND_FIELDS or data[:_DATA_COUNT] != DATA_FIELDS:
        raise RecordUnreadable(
            "The records of the change stream have other fields than this version knows; update the "
            f"platform. Fields: {names}, {data}",
        )


def _struct_fields(field: Any) -> Any:
    return field.type_.array_element_type.struct_type.fields


def _data_row_or_fault(record: bytes) -> RecordRow:
    try:
        return data_row(record)
    except MISSHAPEN as error:
        commit, _sequence, transaction, _is_last, *rest = items(record)
        table = next((_text_or_none(value) for value in rest[:1]), None)
        # Latin-1 can be reversed for any bytes.
        text = record.decode("latin-1")
        return malformed_row(_micros(commit), required_text(transaction), table, text, error)


def _text_or_none(value: bytes) -> str | None:
    try:
        return text(value)
    except MISSHAPEN:
        return None


def data_row(record: bytes) -> RecordRow:
    """Return the row of a data change record.

    Raises:
        One of `MISSHAPEN`: the record does not have the documented shape.
    """
    (
        commit, sequence, transaction, is_last, table, types, mods, mod_type, capture_type,
        records, partitions, tag, is_system,
    ) = items(record)[:_DATA_COUNT]  # fmt: skip
    return RecordRow(
        DATA,
        _micros(commit),
        text(sequence),
        _order(sequence),
        text(transaction),
        boolean(is_last),
        check_table(text(table)),
        text(mod_type),
        text(capture_type),
        _column_types(types),
        _mods(mods),
        _integer(records),
        _integer(partitions),
        text(tag),
        boolean(is_system),
    )


def _children_row(record: bytes) -> RecordRow:
    start, sequence, children = items(record)[:3]
    return RecordRow(
        CHILDREN,
        _micros(start),
        text(sequence),
        _order(sequence),
        child_partitions=[_child(child) for child in items(children)],
    )


def _child(child: bytes) -> Child:
    token, parents = items(child)[:2]
    # Children of the initial query may have a NULL parent, which stands for that query's token.
    return check_token(required_text(token)), [text(parent) or ROOT_TOKEN for parent in items(parents)]


def _mods(mods: bytes) -> ModTexts:
    parts = [items(mod)[:MOD_PARTS] for mod in items(mods)]
    if any(len(mod) < MOD_PARTS for mod in parts):
        raise ValueError("a mod lacks a part")
    return tuple([text(part) for mod in parts for part in mod])


# Records of a transaction are adjacent and share their timestamp and counts, those of a table its columns.
# All are cached by the bytes of their value.


@lru_cache(maxsize=1024)
def _micros(value: bytes) -> int:
    return from_rfc3339(required_text(value))


@lru_cache(maxsize=4096)
def _order(value: bytes) -> str:
    return record_order(required_text(value))


@lru_cache(maxsize=4096)
def _integer(value: bytes) -> int:
    return whole_number(required_text(value))


@lru_cache(maxsize=1024)
def _column_types(value: bytes) -> str:
    columns = []
    for column in items(value):
        name, type_json, is_key, ordinal = items(column)[:4]
        columns.append(
            {
                "name": required_text(name),
                "type": _parse_type(required_text(type_json)),
                "is_primary_key": boolean(is_key),
                "ordinal_position": _integer(ordinal),
            },
        )
    check_columns(columns)
    return json.dumps(columns, ensure_ascii=False)


def _parse_type(type_text: str) -> Any:
    try:
        return json.loads(type_text)
    except ValueError:
        return type_text
