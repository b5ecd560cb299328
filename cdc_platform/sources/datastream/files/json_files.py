"""Events of Datastream's JSON lines."""

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.datastream.events.envelope import Envelope
from cdc_platform.sources.datastream.events.layouts import DOCUMENT_ID
from cdc_platform.sources.datastream.files.blocks import Blocks, LineBlock
from cdc_platform.sources.datastream.files.decoding import (
    Decoding,
    EventFaulty,
    faulty_file,
    micros_of,
    sort_keys_of,
)
from cdc_platform.sources.datastream.files.json_events import (
    JsonEvent,
    Parsed,
    SchemaName,
    check_event,
    event_of,
    keep_documents,
)
from cdc_platform.sources.datastream.values.columns import RowBatch
from cdc_platform.sources.datastream.values.inference import Inference
from cdc_platform.sources.datastream.values.rows import RowReader, problem_of, row_reader
from cdc_platform.sources.datastream.values.types import FieldType
from cdc_platform.sources.datastream.values.values import json_reader
from cdc_platform.sources.text_files import FileDamaged


def read_json(stream: BinaryIO, decoding: Decoding) -> Iterator[Envelope | FaultyEvent]:
    """Yield the events of a file of JSON lines, plain or gzip, in order; blank lines do not count.

    A line that is not an event becomes a faulty event, and reading continues. A damaged gzip file yields the
    events before its damage, and then one faulty event without position for the rest. A file with events of
    an unknown schema is first scanned for its types, so the stream must be seekable.
    """
    blocks = Blocks(stream, decoding.bounds)
    decoder = BlockDecoder(blocks, decoding)
    read = 0
    try:
        for block in blocks:
            yield from decoder.decode(block, read)
            read += len(block.lines)
    except FileDamaged as error:
        yield faulty_file(f"The file is damaged: {error}", events_read=read)


def _inferences(blocks: Blocks, decoding: Decoding) -> Mapping[SchemaName, Inference]:
    """Return what all events of a file without a schema show of their columns."""
    inferences: dict[SchemaName, Inference] = {}
    for block in blocks.scan():
        for batch in block.batches:
            if batch.schema[1] not in decoding.schemas:
                inferences.setdefault(batch.schema, Inference()).add(batch)
    return inferences


class BlockDecoder:
    """Decodes the blocks of one file: each of its schemas is compiled once."""

    def __init__(self, blocks: Blocks, decoding: Decoding) -> None:
        self._blocks, self._decoding = blocks, decoding
        self._inferred: Mapping[SchemaName, Inference] | None = None
        self._variants: dict[SchemaName, Mapping[str, str]] = {}
        self._readers: dict[tuple[SchemaName, int, bool], RowReader] = {}
        self._fitted: dict[tuple[int, int, bool], RowReader] = {}

    def decode(self, block: LineBlock, first_position: int) -> list[Envelope | FaultyEvent]:
        """Return the events of a block."""
        self._fitted = {}
        envelopes: list[Envelope | FaultyEvent] = []
        lines = zip(block.lines, block.events, block.batch_of, strict=True)
        for position, (line, event, batch) in enumerate(lines, first_position):
            try:
                json_event = event if isinstance(event, JsonEvent) else check_event(event)
                envelopes.append(self._envelope(json_event, batch, position, line))
            except MALFORMED as error:
                envelopes.append(_fault(self._decoding, error, line, event, position))
        return envelopes

    def _envelope(self, event: JsonEvent, batch: RowBatch | None, position: int, line: bytes) -> Envelope:
        metadata = event.source_metadata or {}
        reader = _NO_ROW if batch is None else self._reader(batch, event, metadata)
        if reader.documents and event.payload:
            keep_documents(event.payload, reader.documents, line)
        return Envelope(
            event.uuid or "",
            micros_of(event.read_timestamp, "read_timestamp"),
            micros_of(event.source_timestamp, "source_timestamp"),
            event.object_name or "",
            event.read_method or "",
            event.stream_name or "",
            event.schema_key or "",
            sort_keys_of(event.sort_keys),
            metadata,
            reader.columns,
            reader.read(event.payload) if event.payload else {},
            position,
            batch is not None,
        )

    def _reader(self, batch: RowBatch, event: JsonEvent, metadata: Mapping[str, Any]) -> RowReader:
        declarations = self._decoding.declared_for(batch.schema[0], metadata)
        is_document = DOCUMENT_ID in batch.names and self._decoding.is_document(
            event.read_method or "", metadata
        )
        key = (id(batch), id(declarations), is_document)
        fitted = self._fitted.get(key)
        if fitted is None:
            if batch.name_reason is not None:
                raise EventFaulty(batch.name_reason)
            reader = self._reader_of_schema(batch.schema, declarations, is_document=is_document)
            self._check_variants(batch)
            fitted = self._fitted[key] = reader.specialise(batch.types)
        return fitted

    def _check_variants(self, batch: RowBatch) -> None:
        variants = self._variants.get(batch.schema, {})
        name = next((name for name in batch.names if name in variants), None)
        if name is not None:
            raise EventFaulty(
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
        fields, self._variants[name] = self._inferred[name].fields, self._inferred[name].variants
        return row_reader(
            tuple((column, declarations.get(column, field)) for column, field in fields), {}, json_reader
        )


def _fault(decoding: Decoding, error: Exception, line: bytes, content: Parsed, position: int) -> FaultyEvent:
    try:
        event = {} if isinstance(content, EventFaulty) else event_of(line)
    except EventFaulty:
        event = {}
    return decoding.faulty_event(problem_of(error), line.decode(errors="backslashreplace"), position, event)


_NO_ROW: Final = RowReader((), ())
