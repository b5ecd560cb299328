"""Files of a source that exist but could not be read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cdc_platform.lake.catalog.lake import RAW
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.read_progress import list_failed, read_report
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline


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

    def to_dict(self) -> dict[str, Any]:
        """Return the failure as plain values; the moment is an RFC 3339 text."""
        due = to_rfc3339(self.due_micros) if self.due_micros is not None else None
        return {"path": self.path, "error": self.error, "tries": self.tries, "due": due}


def list_unread(pipeline: Pipeline) -> tuple[UnreadFile, ...]:
    """Return the files and folders that are still unread, by path; needs no Spark, and writes nothing."""
    if not pipeline.capabilities.delivers_events:
        return ()
    files = {path: UnreadFile(path, error) for path, error in _newest_failures(pipeline)}
    for path, failure in list_failed(pipeline.lake).items():
        files[path] = UnreadFile(path, failure.error, failure.tries, failure.due_micros)
    return tuple(files[path] for path in sorted(files))


def _newest_failures(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """Yield the failed reads of the newest cycle, for sources without pauses, which do not record them."""
    raw = pipeline.lake.system_table(RAW)
    window = f"kind = '{RecordKind.FILE.value}' and cycle = {read_mark(raw).cycle}"
    rows = raw.scan(row_filter=window, selected_fields=("kind", "cycle", "event")).to_arrow()
    for event in (row["event"] for row in rows.to_pylist()):
        report = read_report(event)
        if not report.is_read:
            yield event["origin"], str(report.error)
