"""The read progress: the versions of files, or the offsets of partitions, that have been read.

It is derived from the reports of committed cycles after the end of the stored progress. A file to replay
counts as unread until a later cycle has read it. A file that could not be read has an entry under a path of
its own, `unread_path`, until it has been read.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.retries import commit_again
from cdc_platform.lake.commits.commits import LEFT_SINCE, Version, cycles_between, head, number_of, read_mark
from cdc_platform.lake.commits.metadata_files import delete_old_metadata
from cdc_platform.lake.commits.snapshots import replace_in_one
from cdc_platform.lake.state.cuts import Cut, cycle_published_by
from cdc_platform.lake.state.quarantine import Replays, load_replays, untaken_records
from cdc_platform.lake.state.read_state import ReadState, former_reads
from cdc_platform.model.base.progress import StepReport
from cdc_platform.model.base.quantities import as_count
from cdc_platform.model.base.schemas import READ_PROGRESS_ROWS
from cdc_platform.model.base.stored_names import CYCLE, LOG, QUARANTINE, RAW, READ_PROGRESS
from cdc_platform.model.base.stored_texts import parse_stored, read_stored, understanding
from cdc_platform.model.base.timestamps import MICROS_PER_S, clock_micros
from cdc_platform.model.stream.files import READ_AGAIN, FileReport
from cdc_platform.model.stream.quarantined_records import QuarantinedRecord
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.model.stream.unread import FailedRead, failed_reads, unread_path

PARTS_WITHIN_MICROS: Final = 100_000
"""Longest time between the parts of one replay: one microsecond for each cycle that takes a part of it."""
REPLAY: Final = "quarantine@"
"""Prefix of the path under which the read progress stores a replay of texts that a cycle has taken."""
MAX_DATA_FILES: Final = 24
"""Number of files of the read progress at which its newest entries replace all rows; each cycle adds one."""
SHOWN_MICROS: Final = 7 * 86_400 * MICROS_PER_S
"""Time for which the status page shows when files were read."""
POLL_TIME: Final = "cdc.polled"
"""Property with the moment of the newest poll that found nothing, in microseconds."""
POLLS_STORED_EVERY_S: Final = 60
"""A poll finds nothing every second or so; one stored at this interval shows that the pipeline runs."""


def load_read_progress(lake: Lake) -> Mapping[str, str]:
    """Return the versions that have been read, and store new ones; needs no Spark.

    A file that must be read again has the version `READ_AGAIN`.
    """
    files = _store_read_progress(lake)
    replays = load_replays(lake).files
    paths = {path for path, cycle in replays.items() if files.cycles.get(path, cycle + 1) <= cycle}
    if not paths:
        return files.versions
    # A request for a replay ends the pauses that began before it.
    ended_paths = {unread_path(path) for path in paths if files.failed_cycles.get(path, 0) <= replays[path]}
    progress = {path: version for path, version in files.versions.items() if path not in ended_paths}
    return {**progress, **dict.fromkeys(paths, READ_AGAIN)}


@dataclass(frozen=True)
class ReadFile:
    """The newest read of a file: the cycle of the read, and the version of the file."""

    cycle: int
    version: str


def last_reads(lake: Lake, paths: Iterable[str]) -> Mapping[str, ReadFile]:
    """Return the newest read of each of these files that has been read; needs no Spark."""
    files = _store_read_progress(lake)
    return {
        path: ReadFile(files.cycles[path], files.versions[path]) for path in paths if path in files.cycles
    }


def waiting_texts(lake: Lake) -> tuple[int, Sequence[QuarantinedRecord]] | None:
    """Return the time and the records of the oldest replay of texts that no cycle has taken."""
    replays = load_replays(lake).texts
    if not replays:
        return None
    versions = _store_read_progress(lake).versions
    pending_moments = [micros for micros in sorted(replays) if replay_path(micros) not in versions]
    return (pending_moments[0], replays[pending_moments[0]]) if pending_moments else None


@dataclass(frozen=True)
class ReplayProgress:
    """Progress of a replay: its records so far and in total, the files to read again, and its time so far."""

    done: int
    total: int
    files: int
    elapsed_s: float

    @property
    def records_per_s(self) -> float | None:
        """Records per second since the request; None before a cycle has taken the first ones."""
        return self.done / self.elapsed_s if self.done and self.elapsed_s > 0 else None

    @property
    def left_s(self) -> float | None:
        """Seconds until the last record, at that rate."""
        return (self.total - self.done) / self.records_per_s if self.records_per_s else None

    def describe(self) -> str:
        """Return the numbers as a line, in the words of a running step."""
        done, total = self.done if self.total else None, self.total or None
        report = StepReport("", self.elapsed_s, "records", done, total, self.records_per_s, self.left_s)
        files = [f"{as_count(self.files, 'file')} to read again"] if self.files else []
        return ", ".join([*report.counts(), *files])


def load_replay_progress(lake: Lake) -> ReplayProgress | None:
    """Return the progress of the oldest unfinished replay, None without one; stores nothing."""
    if not lake.delivers_events:
        untaken = len(untaken_records(lake, lake.system_table(QUARANTINE), lake.system_table(LOG)))
        return ReplayProgress(0, untaken, 0, 0.0) if untaken else None
    replays = load_replays(lake)
    moments, files = _open_replays(replays, _stored(lake.system_table(READ_PROGRESS)))
    # What the stored progress has taken is never taken back, and the rest has to be read each time.
    if moments or files:
        moments, files = _open_replays(replays, _derive_read_progress(lake))
    if not (moments or files):
        return None
    start = min(moments, default=0) - PARTS_WITHIN_MICROS
    sizes = {micros: len(records) for micros, records in replays.texts.items() if moments and micros > start}
    done_bytes = sum(size for micros, size in sizes.items() if micros not in moments)
    elapsed_s = time.time() - min(sizes) / 1e6 if sizes else 0.0
    return ReplayProgress(done_bytes, sum(sizes.values()), files, elapsed_s)


def _open_replays(replays: Replays, state: ReadState) -> tuple[Sequence[int], int]:
    """Return the moments of the replays of texts, and the number of files, that no cycle has taken."""
    moments = [micros for micros in replays.texts if replay_path(micros) not in state.versions]
    return moments, sum(state.cycles.get(path, cycle + 1) <= cycle for path, cycle in replays.files.items())


def replay_path(micros: int) -> str:
    """Return the path of a replay that was requested at a moment."""
    return f"{REPLAY}{micros}"


def save_poll(lake: Lake, now_micros: int, keep_metadata_s: float) -> None:
    """Store a poll of an event source without new events, unless one was stored just before.

    Without it, a pipeline with a silent source would look as if it did not run. Each stored poll creates a
    metadata file, so old ones are deleted here: maintenance waits for cycles, and there are none.

    Args:
        lake: the pipeline's part of the lake.
        now_micros: the time of the poll.
        keep_metadata_s: seconds for which the table's metadata files stay after they are replaced.
    """
    if not lake.delivers_events:
        return
    table = lake.system_table(READ_PROGRESS)
    if not 0 <= now_micros - _poll_of(table) < POLLS_STORED_EVERY_S * MICROS_PER_S:
        # A conflicting commit is another poll's, or a cycle's.
        with suppress(CommitFailedException), table.transaction() as transaction:
            transaction.set_properties({POLL_TIME: str(now_micros)})
        delete_old_metadata(
            lake.system_table(READ_PROGRESS), now_micros - int(keep_metadata_s * MICROS_PER_S)
        )


def load_poll(lake: Lake) -> int:
    """Return the time of the newest stored poll, 0 without one."""
    return _poll_of(lake.system_table(READ_PROGRESS)) if lake.delivers_events else 0


def left_since(lake: Lake, cut: Cut) -> int | None:
    """Return the age of the oldest data of an event source that a cut lacks, because its cycle left it.

    None if the cycle read everything that was there, or its snapshot of the raw records has expired, or a
    later poll has found nothing: files may be deleted before a cycle reads them.
    """
    if not lake.delivers_events:
        return None
    snapshot = next(cycles_between(lake.system_table(RAW), cut.cycle - 1, cut.cycle), None)
    since_micros = number_of(snapshot, LEFT_SINCE) if snapshot is not None else None
    return None if since_micros is None or load_poll(lake) > cut.published_micros else since_micros


def _poll_of(table: Table) -> int:
    return int(table.properties.get(POLL_TIME, "0"))


def list_failed_reads(lake: Lake) -> Mapping[str, FailedRead]:
    """Return the files whose newest read failed, by path; needs no Spark, and stores nothing."""
    return failed_reads(_derive_read_progress(lake).versions)


def _derive_read_progress(lake: Lake) -> ReadState:
    """Return the read progress without storing it."""
    table, cycle = lake.system_table(READ_PROGRESS), read_mark(lake.system_table(RAW)).cycle
    return _stored(table).extended(_reported_after(lake, read_mark(table).cycle, cycle))


def _store_read_progress(lake: Lake) -> ReadState:
    cycle = read_mark(lake.system_table(RAW)).cycle

    def store() -> ReadState:
        table = lake.system_table(READ_PROGRESS)
        mark, state = read_mark(table), _stored(table)
        if mark.cycle >= cycle:
            return state
        rows_to_add, properties = _reported_after(lake, mark.cycle, cycle), {CYCLE: str(cycle)}
        state = state.extended(rows_to_add)
        if _data_files_of(table) < MAX_DATA_FILES:
            table.append(rows_to_add, snapshot_properties=properties)
        else:
            rows = pa.concat_tables([table.scan().to_arrow().cast(READ_PROGRESS_ROWS), rows_to_add])
            newest = state.rows()
            # Up to this cycle, the status page no longer shows reads.
            oldest_cycle = cycle_published_by(lake, clock_micros() - SHOWN_MICROS) or 0
            former = former_reads(rows, newest, oldest_cycle)
            with table.transaction() as transaction:
                replace_in_one(transaction, table, (newest, former), properties)
        _remember(table, state)
        return state

    return commit_again(store, CommitConflict.of(READ_PROGRESS))


def _data_files_of(table: Table) -> int:
    newest = head(table)
    return (number_of(newest, "total-data-files") or 0) if newest is not None else 0


# A cycle needs the state twice, and the next one continues from it; a few pipelines are cached.
@lru_cache(maxsize=4)
def _known_states(_location: str) -> dict[int, ReadState]:
    """Return the states of a table by snapshot, at most the newest one."""
    return {}


def _stored(table: Table) -> ReadState:
    version = Version.newest(table)
    if version is None:
        return ReadState()
    state = _known_states(version.location).get(version.snapshot_id)
    if state is None:
        # Rows without a version only show when files were read, and are in files of their own.
        state = ReadState().extended(table.scan("version is not null").to_arrow())
        _remember(table, state)
    return state


def _remember(table: Table, state: ReadState) -> None:
    version = Version.newest(table)
    if version is not None:
        states = _known_states(version.location)
        states.clear()
        states[version.snapshot_id] = state


@understanding(RAW)
def _reported_after(lake: Lake, after_exclusive: int, until_inclusive: int) -> pa.Table:
    """Return the files that the cycles of an interval have read to the end, and those that failed."""
    window = f"kind = '{RecordKind.FILE.value}' and cycle > {after_exclusive} and cycle <= {until_inclusive}"
    scan = lake.system_table(RAW).scan(row_filter=window, selected_fields=("kind", "cycle", "event"))
    rows = scan.to_arrow().select(["cycle", "event"]).to_pylist()
    reports = ((row["cycle"], row["event"]["origin"], read_report(row["event"])) for row in rows)
    entries = [
        (cycle, *entry) for cycle, path, report in reports if (entry := _entry(path, report)) is not None
    ]
    columns = list(zip(*entries, strict=True)) or [(), (), ()]
    return pa.table(dict(zip(READ_PROGRESS_ROWS.names, columns, strict=True)), READ_PROGRESS_ROWS)


def read_report(event: Mapping[str, Any]) -> FileReport:
    """Return the report on a file in the column `event` of a raw row.

    Raises:
        LakeDamaged: the row is not a report.
    """
    parse = partial(parse_stored, shape=FileReport)
    return read_stored(parse, event["metadata"], RAW, f"the report on {event['origin']}")


def _entry(path: str, report: FileReport) -> tuple[str, str] | None:
    """Return the path and version that a report adds to the read progress, None if it adds nothing."""
    if report.is_read:
        return path, report.version
    if report.tried_micros is None:
        return None
    failure = FailedRead(report.version, report.tried_micros, str(report.error))
    return unread_path(path), failure.to_text()
