"""Files of Debezium's events as a data source of Spark: one task, since a stream has one order."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_platform.errors import SourceError
from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.model.stream.files import SourceFile, files_from_json
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.debezium.files.event_files import event_files
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.settings import DebeziumSettings
from cdc_platform.sources.debezium.transactions.arrivals import Arrival, Passed, PassedUntil
from cdc_platform.sources.debezium.transactions.finalise import settled
from cdc_platform.sources.debezium.transactions.given_out import Reading, give_out
from cdc_platform.sources.debezium.transactions.progress import PASSED, FileProgress
from cdc_platform.sources.debezium.transactions.transaction_buffer import TransactionBuffer
from cdc_platform.sources.debezium.wire.lines import FileLines, further_lines, whole_lines
from cdc_platform.sources.event_batches import EventBatches
from cdc_platform.sources.text_files import FileDamaged
from cdc_platform.sources.workers import prepare_worker

FORMAT_NAME: Final = "debezium_files"
SETTINGS_OPTION: Final = "settings"
CYCLE_OPTION: Final = "cycle"
WINDOW_OPTION: Final = "read_window"
INPUTS_OPTION: Final = "inputs"
GROW_ONLY: Final = "It was cut, or rewritten. Files may grow only; give what is in it now another name."
MOST_BYTES: Final = 256 * 1024**2
"""So much is read by one cycle, and more only where a transaction is larger."""


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
        self.found: dict[str, FileLines] = {}
        self.failed: dict[str, str] = {}

    def run(self, batches: EventBatches) -> Iterator[pa.RecordBatch]:
        """Read, and yield what may pass."""
        total_bytes = 0
        for file in self.unread:
            if total_bytes > MOST_BYTES and self.buffer.has_whole:
                break
            self._read_file(file)
            if self.failed:
                break  # what comes later must not enter the log before it
            total_bytes += file.unread_bytes
        passed = self._open_up()
        yield from give_out(passed, self._reading(passed), batches, self.window)

    def _read_file(self, file: SourceFile) -> None:
        try:
            found = self._lines_of(file)
        except (SourceError, FileDamaged) as error:
            self.failed[file.path] = f"{type(error).__name__}: {error}"
            return
        for position, line in enumerate(found.lines, start=self.begun[file.path]):
            if line.strip():
                decoded = self.decoder.decode_lines([line], position)
                self.buffer.take(Arrival(event, file.path, position) for event in decoded)
        self.found[file.path] = found

    def _lines_of(self, file: SourceFile) -> FileLines:
        """Return the lines of a file that have not been read."""
        if not file.read_bytes:
            whole = whole_lines(self.store.read(file.path), self.decoder.settings.most_unpacked_bytes)
            # A gzip is read as a whole once more where some of its lines wait.
            begun = self.begun[file.path]
            if len(whole.lines) < begun:
                raise FileDamaged(f"{len(whole.lines)} lines instead of {begun}. {GROW_ONLY}")
            return replace(whole, lines=whole.lines[begun:])
        if file.size_bytes < file.read_bytes:
            raise FileDamaged(f"{file.size_bytes} bytes instead of {file.read_bytes}. {GROW_ONLY}")
        data = self.store.read(file.path, file.read_bytes - 1)
        try:
            return further_lines(data, file.read_bytes)
        except FileDamaged as error:
            raise FileDamaged(f"{error}. {GROW_ONLY}") from error

    def _open_up(self) -> Passed:
        return settled(self.buffer.open_up() if self.has_buffer else self.buffer.let_pass(), self.decoder)

    def _reading(self, passed: Passed) -> Reading:
        files = {file.path: file for file in self.unread}
        progress = {
            path: self._progress(files[path], passed.resume.get(path)).to_text() for path in self.found
        }
        further = {PASSED: passed.until.to_text()}
        return Reading(files, progress, self.decoder.state, self.failed, further)

    def _progress(self, file: SourceFile, resume: int | None) -> FileProgress:
        found, begun = self.found[file.path], self.begun[file.path]
        end = begun + len(found.lines)
        lines = end if resume is None else min(end, resume)
        return FileProgress(file.version, lines, found.end_of(lines - begun), is_waiting=lines < end)
