"""One cycle's reading of files of events: splits of them, until enough that may pass has been decoded."""

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.read_windows import ReadPlan
from cdc_platform.model.stream.unread import FORGOTTEN
from cdc_platform.sources.debezium.files.decoding import FileSplitDecoder
from cdc_platform.sources.debezium.files.split_starts import SplitStarts
from cdc_platform.sources.debezium.files.splits import FileSplit, FileSplitter, SplitSize
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.splits.decoded_splits import (
    DecodedSplits,
    LocalSplits,
    SparkSplits,
    decoded_by_tasks,
    raw_records,
)
from cdc_platform.sources.debezium.splits.outcome import SPLIT_BLOCKS, SplitLines, SplitOutcome
from cdc_platform.sources.debezium.splits.release import CycleRows, Release
from cdc_platform.sources.debezium.splits.reports import Reading, report_batches
from cdc_platform.sources.debezium.splits.rounds import SplitRounds
from cdc_platform.sources.debezium.splits.split_reader import SplitContext
from cdc_platform.sources.debezium.transactions.progress import FileProgress, PassedUntil
from cdc_platform.sources.debezium.transactions.transaction_buffer import Admission, TransactionBuffer
from cdc_platform.sources.event_batches import EventBatches
from cdc_platform.sources.file_store import FileStore
from cdc_platform.sources.loading import TaskRecords

Rows = TypeVar("Rows")

MAX_BYTES: Final = 256 * 1024**2
"""Of the text that one cycle reads, unless a transaction is longer."""
MAX_LINES: Final = 500_000
"""The same of lines, each of which takes a kilobyte or more of a task's memory, however short it is."""
MIN_SPLIT_BYTES: Final = 1024**2
"""Of a split: a task takes longer to begin than to decode less."""
MAX_SPLIT_BYTES: Final = 16 * 1024**2
"""The same, of which a task holds a few times as much in memory."""
_GROWTH: Final = 1.25
_LAST: Final = 1.5
"""Multiple of what a cycle reads, up to which it reads all that is left: its steps in which no task runs take
as long for few messages.
"""


class FilesReading:
    """Reading of the files of a plan.

    Args:
        store: where the files are.
        settings: of the stream.
        cycle: the cycle.
        plan: what it reads.
        split_lines: how many lines a split has at most, unless a transaction has more.
    """

    def __init__(
        self,
        store: FileStore,
        settings: DebeziumSettings,
        cycle: int,
        plan: ReadPlan,
        split_lines: int = MAX_LINES,
    ) -> None:
        inputs = plan.inputs
        self._window = plan.windows[0]
        self._context = SplitContext(
            settings.without_password().to_options(), cycle, self._window, is_one_stream=True
        )
        self._state: str | None = inputs["state"]
        self.files: Sequence[SourceFile] = inputs["files"]
        self._lines_read: dict[str, int] = inputs["lines"]
        self._forgotten: Sequence[str] = inputs["forgotten"]
        self._store = store
        self._settings = settings
        self._split_lines = split_lines
        self._buffer = TransactionBuffer(
            is_one_stream=True,
            passed_until=PassedUntil.of(inputs["passed"]),
            read_micros=self._window.end_inclusive_micros,
        )

    def locally(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the raw records of as much as a cycle reads, decoded by this process."""
        rows = self._read(self._decode_locally, 1)
        for batches in rows.splits:
            yield from rows.release(batches)
        yield from rows.reports

    def by_tasks(self, spark: SparkSession, max_tasks: int, frames: ExitStack) -> TaskRecords:
        """Return the same, decoded by tasks.

        Args:
            spark: session whose tasks share the splits.
            max_tasks: how many tasks there are.
            frames: ends when the records have been committed.
        """

        def decode(splits: Sequence[FileSplit], state: str | None) -> SparkSplits:
            numbers = spark.range(0, len(splits), 1, min(len(splits), max_tasks))
            return decoded_by_tasks(numbers, FileSplitDecoder(self._context, state, splits), frames)

        return raw_records(self._read(decode, max_tasks))

    def _read(
        self, decode: Callable[[Sequence[FileSplit], str | None], DecodedSplits[Rows]], max_tasks: int
    ) -> CycleRows[Rows]:
        """Read as much as a cycle does, and on until some of it may pass."""
        rounds = SplitRounds(decode, FileSplit.merge, self._state)
        splitter = self._splitter(max_tasks)
        splits, enough, left_bytes = splitter.splits(), 1.0, self._unread_bytes
        while batch := list(_up_to(splits, enough, left_bytes)):
            rounds.take(batch)
            outcome = rounds.outcome()
            admission = outcome.admission(self._buffer, has_metadata=self._settings.has_transaction_metadata)
            if admission.limit is not None:
                outcome, admission = outcome.without_waiting(admission, rounds.free_rows())
            if self._advances(admission):
                break
            enough, left_bytes = _GROWTH - 1, math.inf
        reading = self._reading(outcome, admission, splitter.failed)
        reports = report_batches(reading, outcome, admission, EventBatches(self._context.cycle), self._window)
        left_since_micros = self._left_since(outcome, admission)
        return CycleRows(list(rounds.blocks()), Release(admission), list(reports), left_since_micros)

    def _left_since(self, outcome: SplitOutcome, admission: Admission) -> int | None:
        """Return the age of the oldest lines that have not been read; None if all have been.

        A file may have grown for long before its last write, so the rest of one that was read in part is as
        old as the newest commit that has been read.
        """
        lines, committed_ms = outcome.lines, admission.until.committed_ms
        left = [file for file in self.files if file.path not in lines or lines[file.path].is_cut]
        if not left:
            return None
        first, moments = left[0].path, [file.modified_micros for file in left]
        if committed_ms and (self._lines_read[first] or (first in lines and lines[first].ends)):
            moments.append(committed_ms * 1000)
        return min(moments)

    def _decode_locally(self, splits: Sequence[FileSplit], state: str | None) -> LocalSplits:
        decoder = FileSplitDecoder(self._context, state, splits)
        blocks = [batch for number in range(len(splits)) for batch in decoder.blocks(number)]
        return LocalSplits(pa.Table.from_batches(blocks, SPLIT_BLOCKS))

    @property
    def _unread_bytes(self) -> float:
        """Bytes of text that have not been read; inf if they are unknown, as those of a gzip."""
        is_packed = any(file.path.endswith(".gz") for file in self.files)
        return math.inf if is_packed else sum(file.unread_bytes for file in self.files)

    def _splitter(self, max_tasks: int) -> FileSplitter:
        # Each split of a gzip unpacks all that comes before it.
        is_packed = math.isinf(self._unread_bytes)
        share_bytes = MAX_BYTES if is_packed else int(min(self._unread_bytes, MAX_BYTES)) // max_tasks
        split_bytes = min(max(share_bytes, MIN_SPLIT_BYTES), MAX_SPLIT_BYTES)
        return FileSplitter(
            self._store,
            self.files,
            self._lines_read,
            SplitStarts(self._settings, DecoderState.from_json(self._state)),
            SplitSize(min(self._split_lines, MAX_LINES), split_bytes),
            self._settings.max_unpacked_bytes,
        )

    def _advances(self, admission: Admission) -> bool:
        """Return whether the next cycle begins behind where this one has begun."""
        if not self.files:
            return True
        first = self.files[0].path
        resume = admission.resume.get(first)
        return resume is None or resume > self._lines_read[first]

    def _reading(self, outcome: SplitOutcome, admission: Admission, errors: dict[str, str]) -> Reading:
        files = {file.path: file for file in self.files}
        advances = self._advances(admission)
        # Else the next cycle begins where the file cannot be read, and says so.
        reports = {
            path: error
            for path, error in errors.items()
            if not (path in outcome.lines and outcome.lines[path].ends and advances)
        }
        progress = {
            path: _progress(lines, files[path], admission.resume.get(path), is_cut=path in errors).to_text()
            for path, lines in outcome.lines.items()
            if path not in reports
        }
        former = {path: SourceFile(path, "", 0, 0) for path in self._forgotten}
        return Reading(files | former, progress | dict.fromkeys(former, FORGOTTEN), reports)


def _up_to(splits: Iterator[FileSplit], enough: float, left_bytes: float) -> Iterator[FileSplit]:
    """Yield the splits that follow next, until there is a share of what a cycle reads, or little is left."""
    lines = text_bytes = 0
    for split in splits:
        yield split
        lines += split.lines
        text_bytes += split.text_bytes
        share = max(text_bytes / MAX_BYTES, lines / MAX_LINES)
        if share >= enough and (share >= _LAST or share * left_bytes > _LAST * text_bytes):
            return


def _progress(lines: SplitLines, file: SourceFile, resume: int | None, *, is_cut: bool) -> FileProgress:
    """Return the progress in a file, of which lines from some place on are read again."""
    end = lines.first_line + len(lines.ends)
    line = end if resume is None else min(end, resume)
    read_bytes = lines.ends[line - lines.first_line - 1] if line > lines.first_line else lines.read_bytes
    is_whole = not (lines.is_cut or is_cut)
    return FileProgress(file.version if is_whole else "", line, read_bytes, is_waiting=line < end)
