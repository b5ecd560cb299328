"""The source for Debezium's events in files."""

import re
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from cdc_platform.errors import SourceError
from cdc_platform.model.base.cached_values import cached_value
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.lineage import Lineage
from cdc_platform.model.stream.read_windows import ReadPlan, ReadRequest
from cdc_platform.model.stream.window_plans import plan_arrivals
from cdc_platform.sources.arrival import ArrivalTimeSource, storable, table_of
from cdc_platform.sources.debezium.engine.engine_process import Capture
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.engine.spool_comments import comments_by_table
from cdc_platform.sources.debezium.engine.spool_files import SpoolFile, reported_as_unusable
from cdc_platform.sources.debezium.files.decoding import event_files
from cdc_platform.sources.debezium.rows.checkpoints import Decoded
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform.sources.debezium.transactions.progress import (
    PASSED,
    STATE,
    FileProgress,
    PassedUntil,
    read_progress_of,
)
from cdc_platform.sources.debezium.wire.lines import read_lines
from cdc_platform.sources.file_store import FileStore
from cdc_platform.sources.task_plan import task_errors
from cdc_platform.sources.text_files import FileDamaged

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from cdc_platform.sources.loading import TaskRecords

DESCRIBED_MESSAGES: Final = 10_000
DESCRIBED_BYTES: Final = 16_000_000
"""Limits of the messages at the start of each file that show its tables before the first read."""


def tables_of(events: Iterable[Decoded]) -> tuple[TableSchema, ...]:
    """Return the tables of messages, each with the columns of its first event."""
    tables: dict[str, TableSchema] = {}
    for event in storable(events):
        if event.table not in tables:
            tables[event.table] = table_of(event)
    return tuple(tables[name] for name in sorted(tables))


def states_of(read_progress: Mapping[str, str]) -> dict[str, str | None]:
    """Return the decoder states that a cycle continues from, as text; None at the beginning of a stream.

    Raises:
        LakeDamaged: no cycle wrote one of them. A task that failed on it could not name it.
    """
    read_progress_of(read_progress, STATE, DecoderState.from_json)
    read_progress_of(read_progress, PASSED, PassedUntil.of)
    return {"state": read_progress.get(STATE), "passed": read_progress.get(PASSED)}


def _first_lines(stream: BinaryIO) -> Iterator[bytes]:
    text_bytes = 0
    for line in islice(read_lines(stream), DESCRIBED_MESSAGES):
        if line.text.strip():
            yield line.text
        text_bytes += len(line.text)
        if text_bytes > DESCRIBED_BYTES:
            return


class DebeziumSource(ArrivalTimeSource):
    """Lists files of events, and sets up Spark's reads of files that are new or have grown.

    Its clock is this machine's: an event belongs to the cycle that reads it.
    """

    def __init__(self, settings: DebeziumSettings) -> None:
        self.settings = settings
        self._frames = ExitStack()

    @cached_value
    def store(self) -> FileStore:
        """The folder with the files."""
        return event_files(self.settings)

    @cached_value
    def capture(self) -> Capture | None:
        """The embedded engine that fills the folder, None for another input."""
        own_input = self.settings.input
        if not isinstance(own_input, EngineInput) or not self.settings.captures:
            return None
        return Capture(own_input)

    def list_tables(self) -> tuple[TableSchema, ...]:
        """Return the tables at the start of each file."""
        return tables_of(self._beginnings())

    def _beginnings(self) -> Iterator[Decoded]:
        decoder = Decoder(self.settings)
        for file in self._files():
            # The cycle reports the files that it cannot read; the others are described here.
            with suppress(SourceError, FileDamaged):
                with self.store.open_stream(file.path) as stream:
                    lines = list(_first_lines(stream))
                yield from decoder.decode_beginning(lines)

    def _files(self) -> list[SourceFile]:
        own_input = self.settings.input
        if isinstance(own_input, EngineInput) and not Path(own_input.spool).is_dir():
            # The engine creates it when it starts, after the first listing.
            return []
        return sorted(self.store.list_files(), key=lambda file: file.path)

    def plan(
        self, lineage: Lineage, request: ReadRequest, read_progress: Callable[[], Mapping[str, str]]
    ) -> ReadPlan:
        """Return one window for the stream, with the files that are new or have grown; or an empty plan.

        Files are read in the order of their names, which is the order of arrival.
        """
        stored_progress = read_progress()
        spooled_lines = self._spooled_lines(stored_progress)
        is_captured = self._capture(spooled_lines)
        progress = {
            file: read_progress_of(stored_progress, file.path, FileProgress.of)
            for file in self._files()
            if is_captured(file)
        }
        is_new = any(file_progress.lacks(file) for file, file_progress in progress.items())
        is_unread = any(partition.running_cycle is None for partition in lineage.partitions.values())
        # Only the engine knows whether the database has something new.
        may_capture = isinstance(self.settings.input, EngineInput) and self.capture is None
        if not (is_new or is_unread or may_capture or request.has_replay):
            return ReadPlan(())
        # Buffered events are read again together with new ones, in the order of the names.
        unread = [
            replace(file, read_bytes=file_progress.read_bytes)
            for file, file_progress in progress.items()
            if file_progress.is_waiting or file_progress.lacks(file)
        ]
        windows = plan_arrivals(lineage, request)
        read_lines = {file.path: file_progress.lines for file, file_progress in progress.items()}
        lines = {file.path: read_lines[file.path] for file in unread}
        inputs = {
            "files": unread,
            "lines": lines,
            "forgotten": self._find_forgettable(stored_progress, spooled_lines),
            **states_of(stored_progress),
        }
        return ReadPlan(windows, inputs, files=len(unread))

    def readable(self, _origins: Collection[str]) -> frozenset[str]:
        """Return none: a stream is read once, in order, and a replay uses the texts of its events."""
        return frozenset()

    def comments(self, table: str) -> Mapping[str, str]:
        """Return the comments that the engine has read; only it connects to the database."""
        place = self.settings.input
        if not isinstance(place, EngineInput):
            return {}
        parents = map(re.escape, self.settings.partitions.values())
        pattern = "|".join((*place.tables, *parents)) if place.tables else "(?s:.*)"
        names, path = (self.settings.table_name, place.database, pattern), Spool(place.folder()).comments
        with reported_as_unusable(path.parent), suppress(FileNotFoundError):
            return {"": "", **comments_by_table(path, path.stat().st_mtime_ns, *names).get(table, {})}
        return {}

    def decode_again(
        self, _origin: str, text: str, position: int | None, former_key: str | None = None
    ) -> Iterator[SourceEvent | FaultyEvent]:
        """Yield the events of a faulty event's text under the present settings, without earlier state."""
        decoder = Decoder(self.settings, is_half=former_key is not None)
        for event in decoder.decode_lines([text], position or 0):
            if isinstance(event, SourceEvent) and former_key is not None:
                yield event._replace(previous_keys=former_key)
            elif isinstance(event, SourceEvent | FaultyEvent):
                yield event

    def _spooled_lines(self, progress: Mapping[str, str]) -> dict[str, int]:
        """Return the number of lines that the lake has of each file of a spool, by name; none without one."""
        if not isinstance(self.settings.input, EngineInput):
            return {}
        return {
            Path(path).name: read_progress_of(progress, path, FileProgress.of).lines
            for path in progress
            if SpoolFile.of(Path(path)) is not None
        }

    def _capture(self, lines: Mapping[str, int]) -> Callable[[SourceFile], bool]:
        """Ensure that the spool is being filled, and delete its files that the lake has had for long.

        Nothing is done for another input, or if the source is only inspected.

        Returns:
            whether the spool has every event before and within a file.

        Raises:
            OffsetsLost: events that the lake lacks were deleted.
            CdcError: the failure that ended the engine.
        """
        own_input = self.settings.input
        if self.capture is None or not isinstance(own_input, EngineInput):
            return lambda _file: True
        spool = Spool(Path(own_input.spool))
        # Before the engine starts, which moves the slot.
        with reported_as_unusable(spool.folder):
            spool.require_identity(own_input.identity())
        spool.require_next(lines)
        spool.delete_read(lines, time.time() - own_input.keep_spool_s)
        self.capture.ensure_running()
        next_offset = spool.require_next(lines)

        def is_captured(file: SourceFile) -> bool:
            spool_file = SpoolFile.of(Path(file.path))
            return spool_file is not None and spool_file.next_offset <= next_offset

        return is_captured

    def _find_forgettable(self, progress: Mapping[str, str], lines: Mapping[str, int]) -> list[str]:
        """Return the files of a spool that the read progress no longer needs."""
        own_input = self.settings.input
        if not isinstance(own_input, EngineInput):
            return []
        names = Spool(Path(own_input.spool)).find_forgettable(lines)
        return [path for path in progress if Path(path).name in names]

    def read(self, spark: "SparkSession", cycle: int, plan: ReadPlan, max_tasks: int) -> "TaskRecords":
        """Decode the files of a plan in Spark tasks, and return their raw records."""
        from cdc_platform.sources.debezium.files.reader import FilesReading

        return FilesReading(self.store, self.settings, cycle, plan).by_tasks(spark, max_tasks, self._frames)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep decoded events, and raise the errors of tasks as errors of the source.

        Raises:
            SourceError: a file can no longer be read that could be read when the cycle was planned.
        """
        with self._frames, task_errors():
            yield

    def read_in_process(self, cycle: int, plan: ReadPlan) -> "Generator[pa.RecordBatch, None, None]":
        """Yield the raw records of the files of a plan, read by this process."""
        from cdc_platform.sources.debezium.files.reader import FilesReading

        return FilesReading(self.store, self.settings, cycle, plan).locally()

    def close(self) -> None:
        """Close the connection and stop the engine."""
        capture = self.__dict__.pop("capture", None)
        if capture is not None:
            capture.stop()
        self.__dict__.pop("store", None)
