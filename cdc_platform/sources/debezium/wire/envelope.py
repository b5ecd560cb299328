"""The content of a message, from the message alone: topics may be renamed on the way."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cdc_platform.model.base.number_texts import whole_number
from cdc_platform.sources.debezium.wire.message_contents import (
    OPS,
    DataEvent,
    EnvelopeContent,
    Heartbeat,
    LogicalMessage,
    MessageUnusable,
    Notification,
    Op,
    Signal,
    SourceInfo,
    Tombstone,
    TransactionBegin,
    TransactionEnd,
)
from cdc_platform.sources.debezium.wire.messages import Message
from cdc_platform.sources.debezium.wire.schema_blocks import Fields, load_json, part_of, payload_of

_ENVELOPE: Final = frozenset({"op", "source"})
_MEMBERS: Final = frozenset(
    {"op", "source", "before", "after", "transaction", "message", "ts_ms", "ts_us", "ts_ns"}
)
_MOMENTS: Final = frozenset({"ts_ms", "ts_us", "ts_ns"})
_SIGNAL: Final = frozenset({"id", "type", "data"})
_STATUSES: Final = ("BEGIN", "END")
_SCANNED: Final = ("SUCCEEDED", "EMPTY")
_SEQUENCE: Final = re.compile(r'\[(?:null|"(\d{1,19})"), ?"(\d{1,19})"\]', re.ASCII)
"""The numbers have so few digits that none is beyond 64 bits."""
SEQUENCE: Final = rf"(?a)^{_SEQUENCE.pattern}\Z"
_SEQUENCES: Final = re.compile(rf"^{_SEQUENCE.pattern}$", re.ASCII | re.MULTILINE)
_BEYOND: Final = 2**64
_SHOWN: Final = 100
_CONNECTOR: Final = "postgresql"
ADDED_PREFIX: Final = "__"
"""Prefix of the columns that a flattening transform adds to the row."""
OLD_KEY: Final = "__debezium.oldkey"
NEW_KEY: Final = "__debezium.newkey"


def read_envelope(message: Message) -> EnvelopeContent | None:
    """Return the content of a message; None if it has no envelope, like flattened messages.

    Raises:
        MessageUnusable: it has an envelope that this version cannot use.
    """
    payload = payload_of(message.value)
    if payload is None:
        return Tombstone(message.topic, payload_of(message.key), message.position)
    if not isinstance(payload, dict):
        raise MessageUnusable("The value is not a JSON object; use the JSON converter for values.")
    if not payload.keys() <= _MEMBERS and any(name.startswith(ADDED_PREFIX) for name in payload):
        # A table may have columns with the names of a control message's fields.
        return None
    if payload.keys() >= _ENVELOPE and isinstance(payload["source"], dict):
        return _logical(message, payload) if payload["op"] == "m" else _data(message, payload)
    if payload.get("status") in _STATUSES and "id" in payload:
        return _boundary(payload)
    return _control(message, payload)


def _control(message: Message, payload: dict[str, Any]) -> Heartbeat | Notification | Signal | None:
    if payload.keys() and payload.keys() <= _MOMENTS:
        server = payload_of(message.key)
        name = server.get("serverName") if isinstance(server, dict) else None
        return Heartbeat(str(name or ""), _moment(payload), message.position)
    if "aggregate_type" in payload and "type" in payload:
        return _notification(message, payload)
    if "type" in payload and payload.keys() <= _SIGNAL:
        return Signal(message.position)
    return None


def _transaction_of(text: object) -> str:
    """Return the part of an id that all changes of a transaction share; the rest is the position of each."""
    return str(text or "").partition(":")[0]


def _data(message: Message, payload: dict[str, Any]) -> DataEvent:
    op = payload["op"]
    if op not in OPS:
        raise MessageUnusable(f"This version does not know the operation {op!r}.")
    source = source_of(payload["source"])
    block = part_of(message.value)[1]
    fields, place = None if block is None else block.row_fields, place_of(payload.get("transaction"), source)
    images = _row(payload.get("before")), _row(payload.get("after"))
    return data_event(message, OPS[op], source, fields, images, place)


def data_event(
    message: Message,
    op: Op,
    source: SourceInfo,
    fields: Fields | None,
    images: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
    place: tuple[str, int | None],
) -> DataEvent:
    """Return the event of a message, with the images before and after, and the result of `place_of`.

    Raises:
        MessageUnusable: the key, or one that a header names, is not an object.
    """
    key, key_block = part_of(message.key)
    return DataEvent(
        message,
        op,
        source,
        _key(key),
        *images,
        fields,
        None if key_block is None else key_block.fields,
        *place,
        _whole_key(_key_header(message, OLD_KEY), key, images),
        _whole_key(_key_header(message, NEW_KEY), key, images),
    )


def place_of(block: Mapping[str, Any] | None, source: SourceInfo) -> tuple[str, int | None]:
    """Return the id of the transaction and the order in it, from the block `transaction`."""
    of_source = None if source.tx_id is None else str(source.tx_id)
    if not block:
        return of_source or "", None
    return of_source or _transaction_of(block.get("id")), whole(block.get("total_order"))


def _logical(message: Message, payload: dict[str, Any]) -> LogicalMessage:
    body, source = payload.get("message") or {}, source_of(payload["source"])
    transaction_id, total_order = place_of(payload.get("transaction"), source)
    content = body.get("content")
    return LogicalMessage(
        message, source, str(body.get("prefix") or ""), str(content or ""), transaction_id, total_order
    )


def _boundary(payload: dict[str, Any]) -> TransactionBegin | TransactionEnd:
    transaction_id, micros = _transaction_of(payload["id"]), _moment(payload)
    if payload["status"] == "BEGIN":
        return TransactionBegin(transaction_id, micros)
    lsn = str(payload["id"]).partition(":")[2]
    commit_lsn = whole(lsn) if lsn.isascii() and lsn.isdecimal() else None
    return TransactionEnd(transaction_id, whole(payload.get("event_count")), commit_lsn)


def _notification(message: Message, payload: dict[str, Any]) -> Notification:
    more = payload.get("additional_data") or {}
    is_scan = (payload["aggregate_type"], payload["type"]) == ("Initial Snapshot", "TABLE_SCAN_COMPLETED")
    is_empty = is_scan and str(more.get("total_rows_scanned")) == "0" and more.get("status") in _SCANNED
    empty_collection = more.get("scanned_collection") if is_empty else None
    server, identity = str(more.get("connector_name") or ""), str(payload.get("id") or "")
    sent_ms = whole(payload.get("timestamp"))
    micros = sent_ms * 1000 if sent_ms is not None else None
    return Notification(server, identity, empty_collection, micros, message.position)


def source_of(fields: Mapping[str, Any]) -> SourceInfo:
    """Return the position of an event from its block `source`.

    Raises:
        MessageUnusable: the event is not of PostgreSQL.
    """
    connector = fields.get("connector")
    if connector not in (None, _CONNECTOR):
        raise MessageUnusable(
            f"The event comes from Debezium's connector {connector!r}, and the platform reads events of "
            f"{_CONNECTOR!r} only. Take its topics or files out of the input."
        )
    schema, table = str(fields.get("schema") or ""), str(fields.get("table") or "")
    return SourceInfo(
        str(fields.get("name") or ""),
        str(fields.get("db") or ""),
        schema,
        table,
        str(fields.get("version") or ""),
        str(fields.get("snapshot") or "false"),
        whole(fields.get("txId")),
        whole(fields.get("lsn")),
        _sequence_of(fields.get("sequence")),
        whole(fields.get("commit_lsn")),
        "commit_lsn" in fields,
        _moment(fields),
        f"{schema}.{table}",
    )


def _sequence_of(value: Any) -> tuple[int | None, int | None] | None:
    """Return the two positions of `source.sequence`, which is a JSON array within a text.

    Raises:
        MessageUnusable: the text has another form.
    """
    if value is None:
        return None
    plain = _SEQUENCE.fullmatch(value) if isinstance(value, str) else None
    if plain is not None:
        before, change = plain.groups()
        return None if before is None else int(before), int(change)
    try:
        first, last = load_json(value) if isinstance(value, str) else value
        return whole(first), whole(last)
    except (ValueError, TypeError) as error:
        raise MessageUnusable(f"`source.sequence` is not a pair of positions: {value!r}.") from error


def sequences_of(texts: Sequence[str]) -> Sequence[tuple[int | None, int]]:
    """Return the positions of events whose sequences match `SEQUENCE`."""
    pairs = _SEQUENCES.findall("\n".join(texts))
    return [(int(before) if before else None, int(change)) for before, change in pairs]


def whole(value: Any) -> int | None:
    """Return a number that arrives as a number or a text.

    Raises:
        MessageUnusable: the database has no such number.
    """
    if value is None:
        return None
    number = value if type(value) is int else whole_number(value)
    if not -_BEYOND < number < _BEYOND:
        raise MessageUnusable(f"A number of the event is beyond 64 bits: {str(value)[:_SHOWN]}.")
    return number


def _moment(fields: Mapping[str, Any]) -> int | None:
    if fields.get("ts_us") is not None:
        return whole(fields["ts_us"])
    millis = whole(fields.get("ts_ms"))
    return None if millis is None else millis * 1000


def _key(key: Any) -> Mapping[str, Any] | None:
    if key is not None and not isinstance(key, dict):
        raise MessageUnusable("The key is not a JSON object; use the JSON converter for keys.")
    return key or None


def _key_header(message: Message, name: str) -> Mapping[str, Any] | None:
    return _key(payload_of(message.headers.get(name))) if message.headers else None


def _whole_key(
    other_key: Mapping[str, Any] | None, key: Any, images: Iterable[Mapping[str, Any] | None]
) -> Mapping[str, Any] | None:
    """Return a key of a header with the columns that a transform has added to the event's key.

    They are no columns of the row, such as the name of its table that `ByLogicalTableRouter` adds.
    """
    if other_key is None or not isinstance(key, dict) or key.keys() <= other_key.keys():
        return other_key
    names = {name for image in images for name in image or ()}
    return {name: value for name, value in key.items() if name not in names} | dict(other_key)


def _row(part: Any) -> Mapping[str, Any] | None:
    if part is not None and not isinstance(part, dict):
        raise MessageUnusable("`before` or `after` is not a JSON object.")
    return part
