"""Events of Datastream's JSON lines."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple

from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.datastream.events.event_runs import EventRun
from cdc_platform.sources.datastream.files.blocks import Blocks, EventGroup, LineBlock
from cdc_platform.sources.datastream.files.decoding import (
    NO_DECLARATIONS,
    Decoding,
    EventFaulty,
    faulty_file,
    micros_of,
)
from cdc_platform.sources.datastream.files.file_runs import check_depth, event_run
from cdc_platform.sources.datastream.files.json_events import SchemaName, facts_of, keep_documents
from cdc_platform.sources.datastream.settings.kinds import DOCUMENT_ID
from cdc_platform.sources.datastream.values.columns import RowBatch
from cdc_platform.sources.datastream.values.inference import Inference
from cdc_platform.sources.datastream.values.rows import RowReader, problem_of, row_reader
from cdc_platform.sources.datastream.values.types import FieldType
from cdc_platform.sources.datastream.values.values import json_reader
from cdc_platform.sources.sound_rows import by_halves
from cdc_platform.sources.text_files import FileDamaged


def read_json(stream: BinaryIO, decoding: Decoding) -> Iterator[Sequence[EventRun | FaultyEvent]]:
    """Yield the events of a file of JSON lines, plain or gzip, block by block; blank lines do not count.

    A line that is not an event becomes a faulty event, and reading continues. A damaged gzip file yields the
    events before its damage, and then one faulty event without position for the rest. A file with events of
    an unknown schema is first scanned for its types, so the stream must be seekable.
    """
    blocks = Blocks(stream, decoding.bounds)
    decoder = BlockDecoder(blocks, decoding)
    count = 0
    try:
        for block in blocks:
            yield list(decoder.decode(block, count))
            count += len(block.lines)
    except FileDamaged as error:
        yield [faulty_file(f"The file is damaged: {error}", events_read=count)]


def _inferences(blocks: Blocks, decoding: Decoding) -> Mapping[SchemaName, Inference]:
    """Return what all events of a file without a schema show of their columns."""
    inferences: dict[SchemaName, Inference] = {}
    for block in blocks.scan():
        for name, columns, count in block.shapes:
            if name[1] not in decoding.schemas:
                inferences.setdefault(name, Inference()).add_columns(columns, count)
        for group in block.groups:
            if group.rows is not None and group.rows.schema in inferences:
                inferences[group.rows.schema].add(group.rows)
    return inferences


class _Form(NamedTuple):
    """Properties that the rows of some events share.

    Args:
        rows: the rows, and maybe others; None if the events have none.
        declarations: declared types of their table.
        is_document: whether they are documents of MongoDB.
    """

    rows: RowBatch | None
    declarations: Mapping[str, FieldType]
    is_document: bool


class BlockDecoder:
    """Decodes the blocks of one file: each of its schemas is compiled once."""

    def __init__(self, blocks: Blocks, decoding: Decoding) -> None:
        self._blocks, self._decoding = blocks, decoding
        self._inferred: Mapping[SchemaName, Inference] | None = None
        self._variants: dict[SchemaName, Mapping[str, str]] = {}
        self._readers: dict[tuple[SchemaName, int, bool], RowReader] = {}

    def decode(self, block: LineBlock, first_position: int) -> Iterator[EventRun | FaultyEvent]:
        """Yield the events of a block, and the faults of those that cannot be decoded, in any order."""
        for place, (error, facts) in block.faults.items():
            yield self._fault(block.lines[place], first_position + place, error, facts)

        def fault(places: Sequence[int], error: Exception) -> EventRun | FaultyEvent:
            facts = facts_of(block.events[places[0]])
            return self._fault(block.lines[places[0]], first_position + places[0], error, facts)

        for group in block.groups:
            for form, places in self._forms(block, group):
                decode = partial(self._run, block, first_position, form)
                yield from by_halves(decode, places, fault, MALFORMED)

    def _forms(self, block: LineBlock, group: EventGroup) -> Iterator[tuple["_Form", Sequence[int]]]:
        """Yield the usable events of a group with the same declarations, in most groups all."""
        if not group.places:
            return
        has_id = group.rows is not None and DOCUMENT_ID in group.rows.names
        if not (self._decoding.declared or has_id):
            yield _Form(group.rows, NO_DECLARATIONS, is_document=False), group.places
            return
        forms: dict[Hashable, tuple[_Form, list[int]]] = {}
        for place in group.places:
            event = block.events[place]
            metadata = event.source_metadata or {}
            declaration = self._decoding.declared_for(event.object_name or "", metadata)
            is_document = has_id and self._decoding.is_document(event.read_method or "", metadata)
            form = _Form(group.rows, declaration, is_document)
            forms.setdefault((id(declaration), is_document), (form, []))[1].append(place)
        yield from forms.values()

    def _run(self, block: LineBlock, first_position: int, form: "_Form", places: Sequence[int]) -> EventRun:
        events, rows, reader = [block.events[place] for place in places], form.rows, _NO_ROW
        if rows is not None:
            payloads = [event.payload or {} for event in events]
            if len(rows.rows) != len(places):
                rows = RowBatch.of(rows.schema, payloads)
            reader = self._reader(form, rows)
            if reader.documents:
                for place, payload in zip(places, payloads, strict=True):
                    keep_documents(payload, reader.documents, block.lines[place])
                rows = RowBatch.of(rows.schema, payloads)
        positions = [first_position + place for place in places]
        run = event_run(events, positions, reader, micros_of, None if rows is None else rows.columns)
        for values in run.metadata.values():
            check_depth(values)
        return run

    def _fault(self, line: bytes, position: int, error: Exception, facts: Mapping[str, Any]) -> FaultyEvent:
        text = line.decode(errors="backslashreplace")
        return self._decoding.faulty_event(problem_of(error), text, position, facts)

    def _reader(self, form: "_Form", rows: RowBatch) -> RowReader:
        reader = self._reader_of_schema(rows.schema, form.declarations, is_document=form.is_document)
        other_names = [name for name in rows.names if name not in reader.names]
        if other_names:
            raise EventFaulty(self._name_reason(rows.schema, other_names))
        return reader.specialise(rows.types)

    def _name_reason(self, schema: SchemaName, other_names: Sequence[str]) -> str:
        """Return why a row cannot have columns that its schema lacks."""
        variants = self._variants.get(schema, {})
        name = next((name for name in other_names if name in variants), None)
        if name is None:
            names = ", ".join(f"`{name}`" for name in other_names)
            return f"The schema of the event's `schema_key` has no column {names}"
        return (
            f"The column `{name}` differs in case only from `{variants[name]}`, which more rows of the "
            "file have, and is one to the lake. Name it as they do"
        )

    def _reader_of_schema(
        self, name: SchemaName, declarations: Mapping[str, FieldType], *, is_document: bool
    ) -> RowReader:
        key = (name, id(declarations), is_document)
        if key not in self._readers:
            reader = self._new_reader(name, declarations)
            if is_document:
                # A type that depends on other documents would make two identifiers of one.
                reader = reader.without_reader(DOCUMENT_ID)
            self._readers[key] = reader
        return self._readers[key]

    def _new_reader(self, name: SchemaName, declarations: Mapping[str, FieldType]) -> RowReader:
        """Return a reader; without a schema, declared columns need no guess at all."""
        schema_fields = self._decoding.schemas.get(name[1])
        if schema_fields is not None:
            return row_reader(schema_fields, declarations, json_reader)
        if self._inferred is None:
            self._inferred = _inferences(self._blocks, self._decoding)
        fields, self._variants[name] = self._inferred[name].columns()
        return row_reader(
            tuple((column, declarations.get(column, field)) for column, field in fields), {}, json_reader
        )


_NO_ROW: Final = RowReader((), ())
