"""Events of Datastream's JSON lines."""

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from cdc_platform.model.events import FaultyEvent
from cdc_platform.sources.datastream.decoding import (
    Decoding,
    EventFaulty,
    faulty_event,
    faulty_file,
    metadata_of,
    micros_of,
    payload_of,
    sort_keys_of,
    text_of,
)
from cdc_platform.sources.datastream.envelope import Envelope
from cdc_platform.sources.datastream.inference import Inference
from cdc_platform.sources.datastream.json_text import compact, parsed
from cdc_platform.sources.datastream.layouts import DOCUMENT_ID
from cdc_platform.sources.datastream.lines import FileDamaged, read_lines
from cdc_platform.sources.datastream.rows import ColumnFaulty, RowReader, row_reader
from cdc_platform.sources.datastream.types import Fields, FieldType
from cdc_platform.sources.datastream.values import json_reader

SchemaName = tuple[str, str]
"""Object and `schema_key`: events that share them have the same columns."""


def read_json(stream: BinaryIO, decoding: Decoding) -> Iterator[Envelope | FaultyEvent]:
    """Yield the events of a file of JSON lines, plain or gzip, in its order; blank lines do not count.

    A line that is no event is one faulty event, and the rest goes on. A damaged gzip yields what is before
    its damage, and then one faulty event without position for the rest. A file with events whose schema
    nobody has told is read twice, first for its types: the stream must be one that can be wound back.
    """
    decoder = LineDecoder(stream, decoding)
    read = 0
    try:
        for line in read_lines(stream):
            yield decoder.decode(line, read)
            read += 1
    except FileDamaged as error:
        yield faulty_file(f"The file is damaged: {error}", events_read=read)


def event_of(line: bytes) -> dict[str, Any]:
    """Return the event of a line.

    Raises:
        EventFaulty: The line is no JSON object, or has texts that are not valid Unicode.
    """
    try:
        event = parsed(line)
        if b"\\u" in line and b"\\ud" in line.lower():
            compact(event).encode()
    except UnicodeError as error:
        raise EventFaulty(f"The line has a text that is not Unicode ({error})") from error
    except ValueError as error:
        raise EventFaulty(f"The line is no JSON ({error})") from error
    if not isinstance(event, dict):
        raise EventFaulty("The line is no JSON object")
    return event


def inferred_fields(stream: BinaryIO, decoding: Decoding) -> Mapping[SchemaName, Fields]:
    """Return the columns of all events whose schema nobody has told; the stream stays where it is."""
    found: dict[SchemaName, Inference] = {}
    place = stream.tell()
    stream.seek(0)
    try:
        for line in read_lines(stream):
            _infer(line, decoding, found)
    except FileDamaged:
        pass  # whoever reads the events says so
    finally:
        stream.seek(place)
    return {name: inference.fields for name, inference in found.items()}


def _infer(line: bytes, decoding: Decoding, found: dict[SchemaName, Inference]) -> None:
    try:
        event = event_of(line)
        name, row = _schema_name(event), payload_of(event)
    except EventFaulty:
        return
    if row is not None and name[1] not in decoding.schemas:
        found.setdefault(name, Inference()).add(row)


def _schema_name(event: Mapping[str, Any]) -> SchemaName:
    return text_of(event, "object"), text_of(event, "schema_key")


class LineDecoder:
    """Decodes the lines of one file: each of its schemas is compiled once."""

    def __init__(self, stream: BinaryIO, decoding: Decoding) -> None:
        self._stream, self._decoding = stream, decoding
        self._inferred: Mapping[SchemaName, Fields] | None = None
        self._readers: dict[tuple[SchemaName, int], RowReader] = {}

    def decode(self, line: bytes, position: int) -> Envelope | FaultyEvent:
        """Return the event of a line."""
        event: dict[str, Any] = {}
        try:
            event = event_of(line)
            return self._envelope(event, position)
        except (EventFaulty, ColumnFaulty) as error:
            return faulty_event(str(error), line.decode(errors="backslashreplace"), position, event)

    def _envelope(self, event: dict[str, Any], position: int) -> Envelope:
        metadata, name, row = metadata_of(event), _schema_name(event), payload_of(event)
        read_method = text_of(event, "read_method")
        reader = _NO_ROW if row is None else self._reader(name, metadata, read_method)
        return Envelope(
            uuid=text_of(event, "uuid"),
            read_timestamp_micros=micros_of(event.get("read_timestamp"), "read_timestamp"),
            source_timestamp_micros=micros_of(event.get("source_timestamp"), "source_timestamp"),
            object_name=name[0],
            read_method=read_method,
            stream_name=text_of(event, "stream_name"),
            schema_key=name[1],
            sort_keys=sort_keys_of(event.get("sort_keys")),
            source_metadata=metadata,
            columns=reader.columns,
            values=reader.read(_of_schema(row or {}, reader)),
            position=position,
            has_payload=row is not None,
        )

    def _reader(self, name: SchemaName, metadata: Mapping[str, Any], read_method: str) -> RowReader:
        declared = self._decoding.declared_for(name[0], metadata)
        key = (name, id(declared))
        if key not in self._readers:
            found = self._new_reader(name, declared)
            if self._decoding.tells_documents(read_method, metadata):
                # A type that depends on other documents would make two identifiers of one.
                found = found.without_reader(DOCUMENT_ID)
            self._readers[key] = found
        return self._readers[key]

    def _new_reader(self, name: SchemaName, declared: Mapping[str, FieldType]) -> RowReader:
        """Return a reader; where nobody told the schema, what is declared needs no guess at all."""
        told = self._decoding.schemas.get(name[1])
        if told is not None:
            return row_reader(told, declared, json_reader)
        if self._inferred is None:
            self._inferred = inferred_fields(self._stream, self._decoding)
        guessed = self._inferred[name]
        return row_reader(
            tuple((column, declared.get(column, field)) for column, field in guessed), {}, json_reader
        )


def _of_schema(row: dict[str, Any], reader: RowReader) -> dict[str, Any]:
    """Return the row, if all of its columns are in its schema."""
    if not row.keys() <= reader.names:
        unknown = ", ".join(f"`{name}`" for name in row if name not in reader.names)
        raise EventFaulty(f"The schema of the event's `schema_key` has no column {unknown}")
    return row


_NO_ROW: Final = RowReader((), ())
