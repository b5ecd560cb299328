"""Files of Debezium's events as a data source of Spark: one task, since a stream has one order."""

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_platform.errors import SourceError
from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.files import SourceFile, files_from_json
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.debezium.files.event_files import event_files
from cdc_platform.sources.debezium.rows.decoder import Decoded, Decoder
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.transactions.arrivals import Arrival, Passed, PassedUntil
from cdc_platform.sources.debezium.transactions.finalise import settled
from cdc_platform.sources.debezium.transactions.given_out import Reading, give_out
from cdc_platform.sources.debezium.transactions.progress import PASSED, FileProgress
from cdc_platform.sources.debezium.transactions.transaction_buffer import TransactionBuffer
from cdc_platform.sources.debezium.wire.lines import Line, check_gzip, read_lines
from cdc_platform.sources.event_batches import EventBatches
from cdc_platform.sources.text_files import CHUNK_BYTES, GZIP_MAGIC, FileDamaged
from cdc_platform.sources.workers import prepare_worker

FORMAT_NAME: Final = "debezium_files"
SETTINGS_OPTION: Final = "settings"
CYCLE_OPTION: Final = "cycle"
WINDOW_OPTION: Final = "read_window"
INPUTS_OPTION: Final = "inputs"
GROW_ONLY: Final = "It was cut, or rewritten. Files may grow only; give what is in it now another name."
MOST_CHARACTERS: Final = 256 * 1024**2
"""Of the text that one cycle reads and holds in memory, unless a transaction is longer."""
MOST_LINES: Final = 500_000
"""The same of lines, each of which takes a kilobyte or more, however short it is."""
_GROWTH: Final = 1.25


class DebeziumDataSource(DataSource):
    """Format `debezium_files`; options are `settings`, `cycle`, `read_window` and `inputs`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT_NAME

    def schema(self) -> StructType:
        """Return the schema of the raw records."""
        prepare_worker()
        return from_arrow_schema(RAW_EVENT_RECORDS)

    def reader(self, schema: StructType) -> "DebeziumReader":  # noqa: ARG002 - Spark's signature
        """Return the reader of the files that the options name."""
        prepare_worker()
        return DebeziumReader(dict(self.options))


class DebeziumReader(DataSourceReader):
    """Reads files in a worker."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the only partition."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        """Yield the events of the files that may enter the log, and what reports on files and stream."""
        prepare_worker()
        settings = DebeziumSettings.from_options(self._options[SETTINGS_OPTION])
        window = ReadWindow(**json.loads(self._options[WINDOW_OPTION]))
        inputs = json.loads(self._options[INPUTS_OPTION])
        batches = EventBatches(int(self._options[CYCLE_OPTION]))
        yield from _Reading(settings, inputs, window).run(batches)


@dataclass
class _Taken:
    """The lines that a cycle has taken of a file.

    Args:
        begun: how many lines earlier cycles have read.
        read_bytes: how many bytes they have read.
    """

    begun: int
    read_bytes: int
    ends: "array[int]" = field(default_factory=lambda: array("q"))
    """Bytes of the file up to the end of each line."""
    is_cut: bool = False
    """Whether the file has more lines, for another cycle."""

    def progress(self, version: str, resume: int | None) -> FileProgress:
        """Return the progress in a version of the file, of which lines from some place on are read again."""
        end = self.begun + len(self.ends)
        lines = end if resume is None else min(end, resume)
        read_bytes = self.ends[lines - self.begun - 1] if lines > self.begun else self.read_bytes
        return FileProgress("" if self.is_cut else version, lines, read_bytes, is_waiting=lines < end)


class _Reading:
    """One cycle's reading: files in the order of their names, until there is enough that may pass."""

    def __init__(self, settings: DebeziumSettings, inputs: Mapping[str, Any], window: ReadWindow) -> None:
        self.window = window
        self.store = event_files(settings)
        self.decoder = Decoder(settings, DecoderState.from_json(inputs["state"]))
        self.buffer = TransactionBuffer(
            is_one_stream=True,
            passed_until=PassedUntil.of(inputs.get("passed")),
            read_micros=window.end_inclusive_micros,
        )
        self.has_buffer = settings.tells_transactions
        self.unread = files_from_json(inputs["files"])
        self.begun: Mapping[str, int] = inputs["lines"]
        self.taken: dict[str, _Taken] = {}
        self.failed: dict[str, str] = {}
        self.text_bytes = self.lines = 0
        self.enough = 1.0
        """Size of the read, in parts of its usual size; above 1 if a transaction is longer."""
        self.is_enough = False
        self.transaction_id = ""

    def run(self, batches: EventBatches) -> Iterator[pa.RecordBatch]:
        """Read, and yield what may pass."""
        for file in self.unread:
            taken = self._read_file(file)
            # What comes later must not enter the log before it.
            if taken is None or taken.is_cut:
                break
        passed = settled(self._open_up(), self.decoder)
        yield from give_out(passed, self._reading(passed), batches, self.window)

    def _read_file(self, file: SourceFile) -> _Taken | None:
        """Take the lines of a file; None where there is none, since the file cannot be read."""
        taken = _Taken(self.begun[file.path], file.read_bytes)
        try:
            self._take_lines(file, taken)
        except (SourceError, FileDamaged) as error:
            # Else the next cycle begins where the file cannot be read, and says so.
            if not taken.ends or not self._advances(self._open_up()):
                self.failed[file.path] = f"{type(error).__name__}: {error}"
                return None
            taken.is_cut = True
        self.taken[file.path] = taken
        return taken

    def _take_lines(self, file: SourceFile, taken: _Taken) -> None:
        for position, (line, read_bytes) in enumerate(self._lines_of(file), start=taken.begun):
            is_enough = self._has_enough()
            # The buffer knows which transactions are whole; without it none is cut in two.
            decoded = [] if is_enough and self.has_buffer else self._decoded(line, position)
            if is_enough and (self.has_buffer or self._begins_transaction(decoded)):
                taken.is_cut = True
                return
            self._note_transaction(decoded)
            self.buffer.take(Arrival(event, file.path, position) for event in decoded)
            taken.ends.append(read_bytes)
            self.text_bytes += len(line)
            self.lines += 1

    def _decoded(self, line: str, position: int) -> list[Decoded]:
        return list(self.decoder.decode_lines([line], position)) if line.strip() else []

    def _has_enough(self) -> bool:
        """Return whether enough has been read for this cycle, and some of it may pass."""
        if (
            not self.is_enough
            and max(self.text_bytes / MOST_CHARACTERS, self.lines / MOST_LINES) >= self.enough
        ):
            self.enough *= _GROWTH
            passed = self._open_up()
            self.is_enough = bool(passed.events) and self._advances(passed)
        return self.is_enough

    def _advances(self, passed: Passed) -> bool:
        """Return whether the next cycle begins behind where this one has begun."""
        first = self.unread[0].path
        resume = passed.resume.get(first)
        return resume is None or resume > self.begun[first]

    def _begins_transaction(self, decoded: Sequence[Decoded]) -> bool:
        """Return whether a line is of another transaction than the one before, as far as events tell."""
        names = {event.transaction_id for event in decoded if isinstance(event, SourceEvent)}
        return not names or "" in names or self.transaction_id not in names

    def _note_transaction(self, decoded: Sequence[Decoded]) -> None:
        for event in decoded:
            if isinstance(event, SourceEvent):
                self.transaction_id = event.transaction_id

    def _lines_of(self, file: SourceFile) -> Iterator[Line]:
        """Yield the lines of a file that have not been read."""
        if file.size_bytes < file.read_bytes:
            raise FileDamaged(f"{file.size_bytes} bytes instead of {file.read_bytes}. {GROW_ONLY}")
        begun = 0 if file.read_bytes else self.begun[file.path]
        with self.store.opened(file.path, max(file.read_bytes - 1, 0)) as stream:
            first = stream.read(CHUNK_BYTES)
            if not file.read_bytes and first.startswith(GZIP_MAGIC):
                with self.store.opened(file.path) as whole:
                    check_gzip(whole, self.decoder.settings.most_unpacked_bytes)
            lines = read_lines(stream, file.read_bytes, first)
            # Each cycle reads a gzip from its beginning.
            skipped = sum(1 for _ in islice(lines, begun))
            if skipped < begun:
                raise FileDamaged(f"{skipped} lines instead of {begun}. {GROW_ONLY}")
            yield from lines

    def _open_up(self) -> Passed:
        return self.buffer.open_up() if self.has_buffer else self.buffer.let_pass()

    def _reading(self, passed: Passed) -> Reading:
        files = {file.path: file for file in self.unread}
        progress = {
            path: taken.progress(files[path].version, passed.resume.get(path)).to_text()
            for path, taken in self.taken.items()
        }
        further = {PASSED: passed.until.to_text()}
        return Reading(files, progress, self.decoder.state, self.failed, further)
