"""Events in JSON lines, before their payloads are decoded."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from cdc_platform.sources.datastream.files.decoding import (
    EventFaulty,
    metadata_of,
    micros_of,
    payload_of,
    sort_keys_of,
    text_of,
)
from cdc_platform.sources.datastream.files.file_runs import FileEvent, check_depth
from cdc_platform.sources.datastream.files.lines import LongLine
from cdc_platform.sources.datastream.values.json_text import JsonDocument, JsonNumber, parsed, without_spaces
from cdc_platform.sources.datastream.values.rows import Documents
from cdc_platform.sources.datastream.values.values import is_element
from cdc_platform.sources.sound_rows import NOT_UNICODE, half_at

SchemaName = tuple[str, str]
"""Object and `schema_key`: events that share them have the same columns."""


class _WrittenEvent(msgspec.Struct):
    """The row of an event, with the raw JSON of its values."""

    payload: dict[str, msgspec.Raw] | None = None


LineContent = FileEvent | dict[str, Any] | EventFaulty
"""Content of a line: an event, an object of another shape, or a fault."""

_typed: Final = msgspec.json.Decoder(FileEvent, float_hook=JsonNumber).decode
_written: Final = msgspec.json.Decoder(_WrittenEvent).decode
_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_BEGIN_VALUES: Final = (b",", b"[", b"{")
_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Matches a whole string from its opening quote, so that no byte is examined twice."""
_REFUSALS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


def parsed_lines(lines: Sequence[bytes], max_values: int) -> Sequence[LineContent]:
    """Return the content of each line; a line with more values than the limit is a fault."""
    is_long = max(map(len, lines), default=0) > max_values
    large = {place for place, line in enumerate(lines) if is_long and has_more_values(line, max_values)}
    try:
        if not large:
            return list(map(_typed, lines))
    except _REFUSALS:
        pass
    refusal = f"The line has more than {max_values} values; see the setting `max_values`"
    return [
        EventFaulty(refusal) if place in large else _parsed_line(line) for place, line in enumerate(lines)
    ]


def has_more_values(line: bytes, limit: int) -> bool:
    """Return whether a line of JSON may have more values than a bound, without parsing it."""
    if len(line) <= limit or sum(map(line.count, _BEGIN_VALUES)) < limit:
        return False
    bare = _TEXT.sub(b"", line)
    return sum(map(bare.count, _BEGIN_VALUES)) >= limit


def _parsed_line(line: bytes) -> LineContent:
    try:
        return _typed(line)
    except _REFUSALS:
        pass
    try:
        return event_of(line)
    except EventFaulty as error:
        return error


def event_of(line: bytes) -> dict[str, Any]:
    """Return the event of a line.

    Raises:
        EventFaulty: The line is not a JSON object, is too long, or has texts that are not valid Unicode.
    """
    if isinstance(line, LongLine):
        raise EventFaulty(f"The line has {line.problem}")
    try:
        event = parsed(line)
    except ValueError as error:
        raise EventFaulty(f"The line is not JSON ({error})") from error
    half = half_at(event, "") if b"\\ud" in line.lower() else None
    if half is not None:
        raise EventFaulty(f"`{half}` {NOT_UNICODE}")
    if not isinstance(event, dict):
        raise EventFaulty("The line is not a JSON object")
    metadata = event.get("source_metadata")
    if isinstance(metadata, dict):
        check_depth(metadata.values())
    return event


def check_event(content: dict[str, Any] | EventFaulty) -> FileEvent:
    """Return the event in an object of another shape.

    Raises:
        EventFaulty: The object is not an event.
    """
    if isinstance(content, EventFaulty):
        raise content
    metadata, name, row = metadata_of(content), _schema_name(content), payload_of(content)
    event = FileEvent(object_name=name[0], schema_key=name[1], source_metadata=metadata, payload=row)
    event.read_method, event.uuid = text_of(content, "read_method"), text_of(content, "uuid")
    event.read_timestamp, event.source_timestamp = (
        content.get("read_timestamp"),
        content.get("source_timestamp"),
    )
    for moment in ("read_timestamp", "source_timestamp"):
        micros_of([content.get(moment)], moment)
    event.stream_name, event.sort_keys = text_of(content, "stream_name"), content.get("sort_keys")
    sort_keys_of([event.sort_keys])
    return event


def facts_of(event: FileEvent) -> Mapping[str, Any]:
    """Return the facts that a fault states about its event; none if the metadata is nested too deeply."""
    metadata = event.source_metadata or {}
    try:
        check_depth(metadata.values())
    except EventFaulty:
        return {}
    facts = {"uuid": event.uuid, "object": event.object_name, "read_method": event.read_method}
    return {**facts, "source_metadata": metadata}


def keep_documents(row: dict[str, Any], documents: Sequence[Documents], line: bytes) -> None:
    """Replace parsed values by their raw JSON, which has what JSON parsers drop.

    Args:
        row: of the event.
        documents: columns that keep raw JSON.
        line: of the event; if it is not JSON by the letter, with a NaN in it, its values stay parsed.
    """
    columns = [column for column in documents if type(row.get(column.name)) in column.types]
    if not columns:
        return
    try:
        payload = _written(line).payload or {}
    except _REFUSALS:
        return
    for column in columns:
        name, raw = column.name, payload[column.name]
        row[name] = _elements(row[name], _items(raw), column) if column.elements else _document(raw)


def _elements(values: list[Any], raw_items: list[msgspec.Raw], column: Documents) -> list[Any]:
    """Return the elements of an array, with the raw JSON of those that count."""
    return [
        _document(raw) if type(value) in column.elements and not is_element(value) else value
        for value, raw in zip(values, raw_items, strict=True)
    ]


def _document(raw: msgspec.Raw) -> JsonDocument:
    return JsonDocument(without_spaces(bytes(raw).decode()))


def row_of(content: dict[str, Any]) -> tuple[SchemaName, dict[str, Any]] | None:
    """Return the row in an object of another shape and the name of its schema; None if it has none."""
    try:
        name, row = _schema_name(content), payload_of(content)
    except EventFaulty:
        return None
    return None if row is None else (name, row)


def _schema_name(event: Mapping[str, Any]) -> SchemaName:
    return text_of(event, "object"), text_of(event, "schema_key")
