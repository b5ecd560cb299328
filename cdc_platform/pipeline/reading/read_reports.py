"""Reports of cycles on repeated events, whether their replay was requested or not."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.quarantine import load_replays
from cdc_platform.lake.state.read_progress import REPLAY, list_failed_reads, read_report
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.stream.files import FileReport
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline


def has_texts(pipeline: Pipeline, reports: str) -> bool:
    """Return whether a cycle has taken a replay of texts, according to the reports that a filter selects."""
    if not load_replays(pipeline.lake).texts:
        return False
    return any(origin.startswith(REPLAY) for origin in _origins(pipeline, reports))


def replayed_origins(pipeline: Pipeline, reports: str) -> frozenset[str]:
    """Return the files and topics that cycles have read and that have replayed events."""
    origins = load_replays(pipeline.lake).origins
    if not origins:
        return frozenset()
    origins_read = _origins(pipeline, reports)
    return origins if any(origin.startswith(REPLAY) for origin in origins_read) else origins & origins_read


def repeated_from(pipeline: Pipeline, reports: str) -> int | None:
    """Return the start of the part of the log to search for duplicates, if it is known to be long ago.

    Cycles report the commit time of transactions that, by their positions, had arrived before at any time.
    """
    if not pipeline.capabilities.delivers_events or not pipeline.capabilities.keeps_transactions:
        return None
    moments = (read_report(event).again_since_micros for event in _events(pipeline, reports))
    since = min((micros for micros in moments if micros is not None), default=None)
    if since is None:
        return None
    # The log has moments of cycles, by another clock than the source's.
    return pipeline.capabilities.repeats_since_micros(since)


def remembered_from(pipeline: Pipeline, after_micros: int, repeats_since_micros: int | None) -> int:
    """Return the start of the log that may have duplicates of later events; see `repeated_from`."""
    since_micros = pipeline.capabilities.repeats_since_micros(after_micros)
    return since_micros if repeats_since_micros is None else min(since_micros, repeats_since_micros)


def _origins(pipeline: Pipeline, reports: str) -> frozenset[str]:
    return frozenset(event["origin"] for event in _events(pipeline, reports))


def _events(pipeline: Pipeline, reports: str) -> list[dict[str, Any]]:
    scan = pipeline.lake.system_table(RAW).scan(
        reports, selected_fields=("kind", "record_timestamp", "event")
    )
    events: list[dict[str, Any]] = scan.to_arrow()["event"].to_pylist()
    return events


@dataclass(frozen=True)
class UnreadFile:
    """A file or a folder whose last read failed, with the error.

    ``due_micros`` is the time of the next attempt; None means the next cycle.
    """

    path: str
    error: str
    tries: int = 1
    due_micros: int | None = None

    def describe(self) -> str:
        """Return a sentence on the failure."""
        if self.due_micros is None:
            return f"{self.path}: {self.error}"
        return (
            f"{self.path}: {self.error} (tried {self.tries} times, again at {to_rfc3339(self.due_micros)}, "
            "or when you start a run or `cdc-platform sync`)"
        )


def list_unread(pipeline: Pipeline) -> tuple[UnreadFile, ...]:
    """Return the files and folders that are still unread, by path; needs no Spark, and writes nothing."""
    if not pipeline.capabilities.delivers_events:
        return ()
    # A source without pauses does not record its failed reads.
    failures = ((path, report.error) for path, report in newest_reports(pipeline) if not report.is_read)
    files = {path: UnreadFile(path, str(error)) for path, error in failures}
    for path, failure in list_failed_reads(pipeline.lake).items():
        files[path] = UnreadFile(path, failure.error, failure.tries, failure.due_micros)
    return tuple(files[path] for path in sorted(files))


def newest_reports(pipeline: Pipeline) -> Iterator[tuple[str, FileReport]]:
    """Yield the reports of the newest cycle, each with the path of its file, partition or state."""
    cycle = read_mark(pipeline.lake.system_table(RAW)).cycle
    for event in _events(pipeline, f"kind = '{RecordKind.FILE.value}' and cycle = {cycle}"):
        yield event["origin"], read_report(event)
