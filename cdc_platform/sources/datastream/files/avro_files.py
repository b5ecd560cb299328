"""Events of Datastream's Avro files."""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, BinaryIO, Final

from fastavro import parse_schema

from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.base.names import unfit_columns_reason
from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.datastream.events.envelope import Envelope
from cdc_platform.sources.datastream.files.avro_bounds import (
    check_extent,
    extent_of,
    max_values_of,
    unroll,
)
from cdc_platform.sources.datastream.files.avro_names import Schema, qualify
from cdc_platform.sources.datastream.files.avro_schemas import (
    bases_of,
    payload_fields,
    without_logical_types,
)
from cdc_platform.sources.datastream.files.avro_values import avro_reader
from cdc_platform.sources.datastream.files.container import (
    DAMAGE,
    AvroDamaged,
    RecordStorage,
    describe_damage,
    read_blocks,
    read_header,
    records,
)
from cdc_platform.sources.datastream.files.decoding import (
    MICROS_PER_MILLI,
    Decoding,
    faulty_file,
    micros_of,
    sort_keys_of,
)
from cdc_platform.sources.datastream.settings.bounds import DEFAULT_BOUNDS, Bounds
from cdc_platform.sources.datastream.values.json_text import compact, parsed
from cdc_platform.sources.datastream.values.rows import RowReader, problem_of, row_reader
from cdc_platform.sources.datastream.values.types import Fields

_TEXTS: Final = ("uuid", "object", "read_method", "stream_name", "schema_key")
AVRO_RECORD: Final = {"_format": "avro"}
"""End of the text of a faulty event whose values need the schema of its file."""
_RECORDS: Final = ("source_metadata", "payload")


def read_avro(stream: BinaryIO, decoding: Decoding) -> Iterator[Envelope | FaultyEvent]:
    """Yield the events of an Avro file in order.

    A damaged file yields the events before its damage, and then a faulty event without position for the rest.
    """
    read = 0
    try:
        header = read_header(stream)
        decoder = EventDecoder(header.schema, decoding)
        for block in read_blocks(stream, header, decoding.bounds.max_block_bytes):
            for record, problem in records(block, decoder.stored):
                yield decoder.decode(record, read, problem)
                read += 1
    except AvroDamaged as error:
        yield faulty_file(f"The Avro file is damaged: {error}", events_read=read)


def schema_of_avro(stream: BinaryIO, bounds: Bounds = DEFAULT_BOUNDS) -> tuple[str, Fields] | None:
    """Return `schema_key` and columns of an Avro file, for JSON events of the same key.

    Returns None if the file has no event or no payload, or is damaged before its first event.
    """
    try:
        header = read_header(stream)
        decoder = EventDecoder(header.schema, Decoding(bounds=bounds))
        for block in read_blocks(stream, header, bounds.max_block_bytes):
            for record, _ in records(block, decoder.stored):
                key = record.get("schema_key")
                return (key, decoder.fields) if key and decoder.fields is not None else None
    except AvroDamaged:
        pass
    return None


class EventDecoder:
    """Decodes the records of files of one schema.

    Raises:
        AvroDamaged: the schema is not that of an event, or exceeds the limits.
    """

    def __init__(self, schema_text: str, decoding: Decoding) -> None:
        schema, self.fields, self.stored = _compile(schema_text, decoding.bounds)
        self._decoding = decoding
        self._units = _units(schema)
        self._has_bytes = _has_bytes(schema)
        self._readers: dict[int, RowReader] = {}

    def decode(
        self, record: dict[str, Any], position: int, problem: str | None = None
    ) -> Envelope | FaultyEvent:
        """Return the event of a record; its payload is turned into the envelope's values.

        Args:
            record: the record.
            position: number of the event in the file.
            problem: the problem of the whole record.
        """
        try:
            if problem is None:
                return self._envelope(record, position)
        except MALFORMED as error:
            problem = problem_of(error)
        return self._decoding.faulty_event(problem, compact(record | AVRO_RECORD), position, record)

    def _envelope(self, record: dict[str, Any], position: int) -> Envelope:
        """Return the event; its parts need no check, because the schema was checked."""
        get = record.get
        metadata, object_name, row = get("source_metadata") or {}, get("object") or "", get("payload")
        if self._has_bytes:
            metadata = parsed(compact(metadata))
        reader = _NO_ROW if row is None else self._reader(object_name, metadata)
        return Envelope(
            get("uuid") or "",
            self._micros(record, "read_timestamp"),
            self._micros(record, "source_timestamp"),
            object_name,
            get("read_method") or "",
            get("stream_name") or "",
            get("schema_key") or "",
            sort_keys_of(get("sort_keys")),
            metadata,
            reader.columns,
            reader.read(row or {}),
            position,
            row is not None,
        )

    def _reader(self, object_name: str, metadata: Mapping[str, Any]) -> RowReader:
        declared = self._decoding.declared_for(object_name, metadata)
        reader = self._readers.get(id(declared))
        if reader is None:
            fields = tuple(
                (name, field.without_bound() if name in declared else field)
                for name, field in self.fields or ()
            )
            reader = self._readers[id(declared)] = row_reader(fields, declared, avro_reader)
        return reader

    def _micros(self, record: Mapping[str, Any], name: str) -> int | None:
        value = record.get(name)
        return value * self._units[name] if type(value) is int else micros_of(value, name)


# A worker's process outlives its tasks; the files of a table mostly share their schema.
@lru_cache(maxsize=256)
def _compile(text: str, bounds: Bounds) -> tuple[Schema, Fields | None, RecordStorage]:
    """Return the schema of a file, the columns of its payload, and what reads its records."""
    schema = _schema(text, bounds)
    try:
        plain_schema = parse_schema(unroll(without_logical_types(schema), bounds.max_depth))
        extent = extent_of(plain_schema, bounds)
        fields, max_values = payload_fields(schema), max_values_of(plain_schema, bounds)
        if (reason := unfit_columns_reason([name for name, _ in fields or ()])) is not None:
            raise ValueError(reason)
        return schema, fields, RecordStorage(plain_schema, max_values, extent.empty_in_items)
    except DAMAGE as error:
        raise AvroDamaged(f"Its schema cannot be used ({describe_damage(error)})") from error


def _schema(text: str, bounds: Bounds) -> Schema:
    """Return the schema of a file, whose parts are of the types that Datastream documents."""
    try:
        schema = json.loads(text)
        check_extent(schema, bounds)
        is_record = isinstance(schema, Mapping) and schema["type"] == "record"
        if not is_record:
            raise ValueError("it is not a record")
        schema = qualify(schema)
        bases = {field["name"]: bases_of(field["type"]) for field in schema["fields"]}
    except DAMAGE as error:
        raise AvroDamaged(f"Its schema is not that of an event ({describe_damage(error)})") from error
    for name in _TEXTS:
        if bases.get(name, set()) - {"string", "null"}:
            raise AvroDamaged(f"In its schema `{name}` is not text")
    for name in _RECORDS:
        if bases.get(name, set()) - {"record", "null"}:
            raise AvroDamaged(f"In its schema `{name}` is not a record")
    return schema


def _has_bytes(schema: Schema) -> bool:
    """Return whether the source's metadata may have values that JSON has not."""
    metadata = [field for field in schema["fields"] if field["name"] == "source_metadata"]
    return any(f'"{base}"' in json.dumps(metadata) for base in ("bytes", "fixed"))


def _units(schema: Schema) -> dict[str, int]:
    """Return the microseconds per unit of an event's timestamps; the default unit is a millisecond."""
    return {
        field["name"]: 1 if "timestamp-micros" in json.dumps(field) else MICROS_PER_MILLI
        for field in schema["fields"]
        if field["name"] in ("read_timestamp", "source_timestamp")
    }


_NO_ROW: Final = RowReader((), ())
