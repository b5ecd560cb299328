"""Messages of topics, parsed from the lines of files or from the bytes of Kafka and the engine."""

import json
from collections.abc import Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from cdc_platform.model.base.number_texts import whole_number
from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.debezium.wire.schema_blocks import RAW_MEMBERS, load_json, load_part
from cdc_platform.sources.debezium.wire.stored_blocks import SpoolAbsent, with_blocks
from cdc_platform.sources.json_codec import text_of_bytes
from cdc_platform.sources.sound_rows import escape, is_unicode

_MEMBERS: Final = frozenset(
    {
        *("topic", "key", "value", "headers", "partition", "offset", "timestamp", "destination"),
        # of kcat, in which `payload` is the value
        *("payload", "tstype", "ts", "broker", "timestampType", "timestamp_type"),
    },
)
_AVRO_MAGIC: Final = b"\x00"


class RawMessage(NamedTuple):
    """A message of Kafka or of the engine, with its key, value and headers as sent."""

    topic: str
    key: bytes | str | None
    value: bytes | str | None
    headers: Mapping[str, bytes | str | None] | None = None
    partition: int = 0
    offset: int | None = None
    timestamp_micros: int | None = None
    position: int = 0


Content = bytes | RawMessage
"""A line of a file, or a message."""
Content_co = TypeVar("Content_co", covariant=True)
Other = TypeVar("Other")


class Arrival(msgspec.Struct, Generic[Content_co], frozen=True, gc=False):
    """A line or message, or what was decoded from it, and its place: a position in a file or partition.

    ``micros`` is its send time, if messages of several partitions come in one stream; ``number`` is the
    number of messages up to this one.
    """

    content: Content_co
    origin: str
    position: int
    micros: int
    number: int

    def with_content(self, content: Other) -> "Arrival[Other]":
        """Return other content, such as what was decoded from this one, at the same place."""
        return Arrival(content, self.origin, self.position, self.micros, self.number)


class Message(msgspec.Struct, frozen=True):
    """One message of a topic.

    Args:
        topic: name of the topic; empty if unknown.
        partition: partition of the topic.
        offset: offset in the partition; None if unknown.
        timestamp_micros: time of the message itself, not of the source.
        key: JSON; None if the message has no key.
        value: JSON; None for a tombstone.
        headers: JSON by name; None if they were not kept.
        position: position in the order of arrival, counted from 0.
        has_key: whether the key is known, even if the message has none.
        sent: the original message.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp_micros: int | None
    key: Any
    value: Any
    headers: Mapping[str, Any] | None = None
    position: int = 0
    has_key: bool = True
    sent: str | RawMessage = ""

    @property
    def place(self) -> str:
        """The partition of its topic."""
        return f"{self.topic}/{self.partition}"

    @property
    def text(self) -> str:
        """The original message, for quarantine."""
        return with_blocks(self.sent) if isinstance(self.sent, str) else _raw_text(self.sent)


class _MessageMalformed(ValueError):
    """A message is not in any supported format; the text states the reason."""


def parse_message(content: Content, position: int) -> Message | FaultyEvent:
    """Return the message of a line at a position, or of a record, which has its own."""
    return parse_line(content, position) if isinstance(content, bytes) else parse_raw(content)


def parse_line(line: bytes, position: int) -> Message | FaultyEvent:
    """Return the message of a line: an object of topic, key and value, or the value alone."""
    text = line.decode(errors="surrogateescape").strip()
    try:
        if not is_unicode(text):
            # Bytes of a file that are not UTF-8; half of a surrogate pair arrives escaped.
            text_of_bytes(line)
        fields = _load_line(text) if has_block_in(line) else load_json(text)
        if fields is None:
            return Message("", 0, None, None, None, None, None, position, has_key=False, sent=text)
        if not isinstance(fields, dict):
            raise _MessageMalformed("a line must be a JSON object")
        return _message_of(fields, position, text)
    except (ValueError, RecursionError, TypeError, LookupError, AttributeError) as error:
        reason = f"The line cannot be read as a message: {error}."
        return FaultyEvent(reason, with_blocks(escape(text)), position)


def is_utf8(text: bytes | str) -> bool:
    """Return whether a line can be quarantined as text; unused members are parsed without a check."""
    if text.isascii() or isinstance(text, str):
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def has_utf8_parts(raw: RawMessage) -> bool:
    """Return whether the key and the value of a message are text."""
    return (raw.key is None or is_utf8(raw.key)) and (raw.value is None or is_utf8(raw.value))


def _message_of(fields: dict[str, Any], position: int, text: str) -> Message:
    value_name = "value" if "value" in fields else "payload"
    if value_name not in fields or not _is_message(fields):
        return Message("", 0, None, None, None, fields, None, position, has_key=False, sent=text)
    timestamp = fields.get("timestamp", fields.get("ts"))
    return Message(
        str(fields.get("topic") or fields.get("destination") or ""),
        whole_number(fields.get("partition") or 0),
        None if fields.get("offset") is None else whole_number(fields["offset"]),
        None if timestamp is None else whole_number(timestamp) * 1000,
        parse_part(fields.get("key")),
        parse_part(fields[value_name]),
        _headers(fields["headers"]) if fields.get("headers") is not None else None,
        position,
        "key" in fields,
        text,
    )


def _is_message(fields: Mapping[str, Any]) -> bool:
    """Return whether an object is a message, and not the row of a flattened value."""
    if fields.keys() <= _MEMBERS:
        return True
    # Some tools write further members; a flattened row also has fields of the connector.
    return "topic" in fields and not any(name.startswith("__") for name in fields)


def parse_raw(raw: RawMessage) -> Message | FaultyEvent:
    """Return the message of a record from Kafka or the engine."""
    try:
        headers = (
            None if raw.headers is None else {name: parse_header(item) for name, item in raw.headers.items()}
        )
        return Message(
            raw.topic,
            raw.partition,
            raw.offset,
            raw.timestamp_micros,
            _parse_key(raw.key),
            _parse_value(raw.value),
            headers,
            raw.position,
            sent=raw,
        )
    except (ValueError, RecursionError, SpoolAbsent) as error:
        return FaultyEvent(f"The message cannot be read: {error}.", _raw_text(raw), raw.position)


def parse_header(value: Any) -> Any:
    """Return the JSON or the text of a header; octets that are neither belong to other programs."""
    return parse_part(_as_text(value) if isinstance(value, bytes) else value)


def _parse_key(key: bytes | str | None) -> Any:
    if key is not None and not is_utf8(key):
        raise _MessageMalformed("its key is not a JSON object; use the JSON converter for keys")
    return parse_part(key)


def _parse_value(value: bytes | str | None) -> Any:
    """Return the JSON of a value; all other formats are errors."""
    if value is None or value in (b"", ""):
        return None
    if isinstance(value, bytes) and value.startswith(_AVRO_MAGIC):
        raise _MessageMalformed("its value is Avro or Protobuf of a schema registry; use JSON converters")
    if isinstance(value, bytes) and not value.isascii():
        value = text_of_bytes(value)
    return load_part(value)


def parse_part(value: Any) -> Any:
    """Return the JSON of a part that is embedded as JSON or as text; text that is not JSON stays text."""
    if isinstance(value, bytes):
        value = text_of_bytes(value)
    if value == "":
        return None
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "null")):
        return value
    try:
        return load_part(value)
    except ValueError:
        return value


def _headers(headers: Any) -> dict[str, Any]:
    """Return headers by name, from an object or a list of pairs, objects, or alternating names and values."""
    if isinstance(headers, dict):
        pairs = list(headers.items())
    elif all(isinstance(item, dict) for item in headers):
        pairs = [(item["key"], item["value"]) for item in headers]
    elif all(isinstance(item, list) for item in headers):
        pairs = [(name, value) for name, value in headers]
    else:
        pairs = list(zip(headers[::2], headers[1::2], strict=True))
    return {str(name): parse_part(value) for name, value in pairs}


def has_block_in(line: bytes) -> bool:
    """Return whether parts of a line seem to have schema blocks."""
    return b'":{"schema":' in line


def _load_line(line: str) -> Any:
    """Return the JSON of a line with schema blocks, including those in the parts of a message."""
    try:
        return {name: load_part(bytes(raw)) for name, raw in RAW_MEMBERS.decode(line).items()}
    except (ValueError, RecursionError):
        return load_json(line)


def _raw_text(raw: RawMessage) -> str:
    parts = {
        "topic": raw.topic,
        "partition": raw.partition,
        "offset": raw.offset,
        "key": _as_text(raw.key),
        "value": _as_text(raw.value),
        "headers": None
        if raw.headers is None
        else {name: _as_text(item) for name, item in raw.headers.items()},
    }
    return json.dumps(parts, ensure_ascii=False)


def _as_text(part: bytes | str | None) -> str | None:
    return part.decode(errors="backslashreplace") if isinstance(part, bytes) else part
