"""Decoding of splits of files, by tasks of Spark or by the pipeline's own process."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from cdc_platform.errors import SourceUnreachable
from cdc_platform.sources.debezium.engine.spool_files import SUFFIX as SPOOLED
from cdc_platform.sources.debezium.files.segments import GROW_ONLY, Segment, opened_lines
from cdc_platform.sources.debezium.files.splits import FileSplit
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform.sources.debezium.splits.outcome import SplitLines
from cdc_platform.sources.debezium.splits.split_reader import SplitContext, SplitReader
from cdc_platform.sources.debezium.wire.stored_blocks import use_blocks_of
from cdc_platform.sources.file_store import FileStore
from cdc_platform.sources.text_files import FileDamaged

SUFFIXES: Final = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
"""Endings of the names of files that other programs write."""


def event_files(settings: DebeziumSettings) -> FileStore:
    """Return the files with events; a spool also has files that describe it, which are left out."""
    if not isinstance(settings.input, EngineInput):
        return FileStore(settings.folder, SUFFIXES, setting="input.files.path")
    use_blocks_of(settings.input.folder())
    return FileStore(settings.folder, (SPOOLED,), setting="input.engine.spool")


NUMBER: Final = "id"
"""Column of the rows that a task takes: the number of a split."""


@dataclass(frozen=True)
class FileSplitDecoder:
    """Takes batches of numbers of splits, and returns their `SPLIT_BLOCKS`.

    Args:
        context: of the cycle.
        state: what is known before the first split, as text.
        splits: the splits.
    """

    context: SplitContext
    state: str | None
    splits: Sequence[FileSplit]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of the splits of each batch."""
        for batch in batches:
            for number in batch.column(NUMBER).to_pylist():
                yield from self.blocks(number)

    def blocks(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of one split."""
        segments = self.splits[number].segments
        reader = SplitReader(self.context, self.state, {item.file.path: item.file for item in segments})
        store = event_files(reader.settings)
        for segment in segments:
            _take(reader, store, segment)
        return reader.blocks(number)


def _take(reader: SplitReader, store: FileStore, segment: Segment) -> None:
    """Take the lines of a segment, which were there when it was planned.

    Raises:
        SourceError: the store does not give them now; the next cycle plans again and reports the file.
    """
    path, ends = segment.file.path, array("Q")
    planned_lines = (segment.until_exclusive or 0) - segment.first_line
    try:
        # A file that could not be read has no line, and is not opened again.
        with opened_lines(store, segment) if planned_lines else nullcontext(()) as lines:
            for position, line in enumerate(lines, start=segment.first_line):
                if line.text.strip():
                    reader.take(line.text, path, position)
                ends.append(line.read_bytes)
    except FileDamaged as error:
        raise SourceUnreachable(f"The file was changed while it was read: {path} ({error})") from error
    if len(ends) < planned_lines:
        raise SourceUnreachable(f"The file was cut while it was read. {GROW_ONLY} File: {path}")
    reader.lines[path] = SplitLines(segment.first_line, segment.read_bytes, ends, is_cut=segment.is_cut)
