"""Events of Datastream's Avro files."""

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, BinaryIO, Final

from fastavro import parse_schema
from msgspec.structs import fields

from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.base.names import unfit_columns_reason
from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.datastream.events.event_runs import EventRun
from cdc_platform.sources.datastream.files.avro_bounds import Extents, check_extent, max_values_of, unroll
from cdc_platform.sources.datastream.files.avro_names import Schema, qualify
from cdc_platform.sources.datastream.files.avro_schemas import bases_of, payload_fields, without_logical_types
from cdc_platform.sources.datastream.files.avro_values import avro_reader
from cdc_platform.sources.datastream.files.container import (
    DAMAGE,
    AvroBlock,
    AvroDamaged,
    RecordStorage,
    describe_damage,
    read_blocks,
    read_header,
    records,
)
from cdc_platform.sources.datastream.files.decoding import MICROS_PER_MILLI, Decoding, faulty_file, micros_of
from cdc_platform.sources.datastream.files.file_runs import FileEvent, event_run, form_of
from cdc_platform.sources.datastream.settings.bounds import DEFAULT_BOUNDS, Bounds
from cdc_platform.sources.datastream.values.json_text import compact, parsed
from cdc_platform.sources.datastream.values.rows import RowReader, problem_of, row_reader
from cdc_platform.sources.datastream.values.types import Fields, FieldType
from cdc_platform.sources.sound_rows import by_halves

_TEXTS: Final = ("uuid", "object", "read_method", "stream_name", "schema_key")
AVRO_RECORD: Final = {"_format": "avro"}
"""End of the text of a faulty event whose values need the schema of its file."""
_RECORDS: Final = ("source_metadata", "payload")
_MEMBERS: Final = tuple(field.encode_name for field in fields(FileEvent))
_MAX_RECORDS: Final = 1_000
_MAX_BYTES: Final = 1 << 20
"""Maximum number of records that are decoded together, and approximate maximum of their bytes."""
Record = tuple[Any, str | None]
"""A record, and the problem of the whole record if it has one."""


def read_avro(stream: BinaryIO, decoding: Decoding) -> Iterator[Sequence[EventRun | FaultyEvent]]:
    """Yield the events of an Avro file, some at a time.

    A damaged file yields the events before its damage, and then a faulty event without position for the rest.
    """
    count = 0
    try:
        header = read_header(stream)
        decoder = EventDecoder(header.schema, decoding)
        for block in read_blocks(stream, header, decoding.bounds.max_block_bytes):
            for some in _some_records(block, decoder.stored):
                yield list(decoder.decode(some, count))
                count += len(some)
    except AvroDamaged as error:
        yield [faulty_file(f"The Avro file is damaged: {error}", events_read=count)]


def _some_records(block: AvroBlock, storage: RecordStorage) -> Iterator[Sequence[Record]]:
    """Yield the records of a block, some at a time; those before a damage come before its error."""
    limit = max(1, min(_MAX_RECORDS, block.count * _MAX_BYTES // max(1, len(block.records))))
    some: list[Record] = []
    try:
        for record in records(block, storage):
            some.append(record)
            if len(some) >= limit:
                yield some
                some = []
    except AvroDamaged:
        yield some
        raise
    yield some


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

    def decode(self, some: Sequence[Record], first_position: int) -> Iterator[EventRun | FaultyEvent]:
        """Yield the events of records, and the faults of those that cannot be decoded, in any order.

        Args:
            some: records, each with the problem of the whole record.
            first_position: number of the first one in the file.
        """

        def fault(places: Sequence[int], error: Exception) -> EventRun | FaultyEvent:
            record = some[places[0]][0]
            text = compact(record | AVRO_RECORD)
            return self._decoding.faulty_event(problem_of(error), text, first_position + places[0], record)

        groups: dict[Hashable, list[int]] = {}
        events: list[FileEvent] = []
        for place, (record, problem) in enumerate(some):
            events.append(FileEvent(*map(record.get, _MEMBERS)))
            try:
                form = self._form(events[place], problem)
            except MALFORMED as error:
                yield fault([place], error)
            else:
                groups.setdefault(form, []).append(place)
        for group in groups.values():
            yield from by_halves(partial(self._run, events, first_position), group, fault, MALFORMED)

    def _form(self, event: FileEvent, problem: str | None) -> Hashable:
        """Return the form of an event; its parts need no check, because the schema was checked."""
        if problem is not None:
            raise ValueError(problem)
        if self._has_bytes:
            event.source_metadata = parsed(compact(event.source_metadata or {}))
        return form_of(event), id(self._declared(event))

    def _declared(self, event: FileEvent) -> Mapping[str, FieldType]:
        return self._decoding.declared_for(event.object_name or "", event.source_metadata or {})

    def _run(self, events: Sequence[FileEvent], first_position: int, places: Sequence[int]) -> EventRun:
        alike = [events[place] for place in places]
        reader = _NO_ROW if alike[0].payload is None else self._reader(alike[0])
        return event_run(alike, [first_position + place for place in places], reader, self._micros)

    def _reader(self, event: FileEvent) -> RowReader:
        declaration = self._declared(event)
        reader = self._readers.get(id(declaration))
        if reader is None:
            fields = tuple(
                (name, field.without_bound() if name in declaration else field)
                for name, field in self.fields or ()
            )
            reader = self._readers[id(declaration)] = row_reader(fields, declaration, avro_reader)
        return reader

    def _micros(self, values: Sequence[Any], name: str) -> Sequence[int | None]:
        if set(map(type, values)) == {int}:
            unit = self._units[name]
            return [value * unit for value in values]
        return [
            value * self._units[name] if type(value) is int else micros_of([value], name)[0]
            for value in values
        ]


# A worker's process outlives its tasks; the files of a table mostly share their schema.
@lru_cache(maxsize=256)
def _compile(text: str, bounds: Bounds) -> tuple[Schema, Fields | None, RecordStorage]:
    """Return the schema of a file, the columns of its payload, and what reads its records."""
    schema = _schema(text, bounds)
    try:
        plain_schema = parse_schema(unroll(without_logical_types(schema), bounds.max_depth))
        extent = Extents(bounds.max_depth).measure(plain_schema)
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
