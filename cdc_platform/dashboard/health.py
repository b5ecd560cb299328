"""The health of a pipeline: one word and its reasons."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cdc_platform.lake.state.last_results import LastResult
from cdc_platform.lake.state.read_progress import POLLS_STORED_EVERY_S
from cdc_platform.model.base.names import FRESH
from cdc_platform.model.base.quantities import as_age, as_count, as_duration
from cdc_platform.pipeline.on_demand.status import Status

UNPOLLED_S: Final = 3.0 * POLLS_STORED_EVERY_S
"""An event source that has not been polled for longer is late: its pipeline is not running."""
START_ADVICE: Final = "if nothing runs, start `sync --continuous` or the sensor"
"""The lake does not know whether a cycle is running."""
NAMED: Final = 3
"""Maximum number of tables named in a reason."""


class State(StrEnum):
    """The health of a pipeline; every word but the first needs attention. The first of several applies."""

    HEALTHY = "Healthy"
    """Neither the lake nor the checks report a problem."""
    UNKNOWN = "Unknown"
    """The lake or a part of it cannot be read, or the pipeline has never run."""
    FAILING = "Failing"
    """A check has failed."""
    LATE = "Late"
    """The newest cut is too far behind; for files and topics, unread data waits, or nothing polls them."""
    INCOMPLETE = "Incomplete"
    """Part of the source is in no table: records in quarantine, unread files, stuck partitions."""
    COPYING = "Copying"
    """An initial copy is running."""
    STARTING = "Starting"
    """No cut has been published yet."""


@dataclass(frozen=True)
class Health:
    """The health and its reasons, most severe first; ``note`` describes a pipeline without reasons."""

    word: State
    reasons: tuple[str, ...] = ()
    note: str = ""

    @property
    def is_healthy(self) -> bool:
        """Whether the pipeline needs no attention."""
        return self.word is State.HEALTHY


def assess_health(status: Status, now_micros: int, late_after_s: float) -> Health:
    """Return the health of a pipeline.

    Args:
        status: status of the pipeline.
        now_micros: the current time.
        late_after_s: longest lag, or silence of a source with unread data, that is not late.
    """
    polled_s = _seconds_since_poll(status, now_micros)
    findings = list(_findings(status, now_micros / 1e6, polled_s, late_after_s))
    if not findings:
        return Health(State.HEALTHY, note=_note(status, polled_s, late_after_s))
    order = list(State)
    findings.sort(key=lambda finding: order.index(finding[0]))
    return Health(findings[0][0], tuple(reason for _, reason in findings))


def _seconds_since_poll(status: Status, now_micros: int) -> float:
    """Return the time since an event source was last polled by a cycle, the sensor, or the check."""
    passed_s = (check.at_s for check in status.checks if check.name == FRESH and check.passed)
    return now_micros / 1e6 - max([(status.polled_micros or 0) / 1e6, *passed_s])


def _note(status: Status, polled_s: float, late_after_s: float) -> str:
    """Return the note of a pipeline that has a cut and no findings."""
    lag_s = status.lag_s or 0.0
    if not status.is_silence:
        return f"the newest cut is {as_duration(lag_s)} behind"
    if lag_s <= late_after_s:
        return "everything that was read is published"
    return f"silent for {as_duration(lag_s)}; polled {as_age(polled_s)}"


def _findings(
    status: Status, now_s: float, polled_s: float, late_after_s: float
) -> Iterator[tuple[State, str]]:
    for name, error in status.unreadable.items():
        yield State.UNKNOWN, f"{name} cannot be read: {error}"
    yield from ((State.FAILING, failure) for failure in _failures(status.checks))
    if status.lag_s is not None and status.lag_s > late_after_s:
        yield from ((State.LATE, reason) for reason in _late(status, status.lag_s, now_s, late_after_s))
        read_s = now_s - status.watermark_micros / 1e6 if status.watermark_micros is not None else 0.0
        if status.is_silence and polled_s > max(late_after_s, UNPOLLED_S):
            yield State.LATE, f"the source was last polled {as_age(polled_s)}; {START_ADVICE}"
        elif not status.delivers_events and not status.stuck_partitions and read_s > late_after_s:
            yield State.LATE, f"the source was last read up to {as_age(read_s)}; {START_ADVICE}"
    for part in status.stuck_partitions:
        yield State.INCOMPLETE, f"partition {part.key} holds the watermark, {as_duration(part.age_s)} behind"
    if status.unread_files:
        yield State.INCOMPLETE, f"{as_count(len(status.unread_files), 'file')} could not be read"
    if status.quarantined:
        yield State.INCOMPLETE, f"{as_count(status.quarantined, 'record')} in quarantine"
    if status.copies:
        yield State.COPYING, f"initial copy of {', '.join(status.copies)}"
    if status.cut is None and "cut" not in status.unreadable:
        yield State.STARTING, "no cut has been published yet"


def _failures(checks: Sequence[LastResult]) -> Iterator[str]:
    """Yield a sentence for each failed check, with its failed tables.

    A check of all tables together is listed with those of single tables, and may share their name.
    """
    groups: dict[tuple[str, str], list[LastResult]] = {}
    for check in checks:
        groups.setdefault((check.name, check.asset.rpartition("/")[0]), []).append(check)
    for (name, _), results in groups.items():
        assets = [check.asset for check in results if check.has_failed]
        if assets:
            of_all = f"{len(assets)} of {len(results)} tables: " if len(results) > 1 else ""
            more = f" and {len(assets) - NAMED} more" if len(assets) > NAMED else ""
            yield f"check {name} failed on {of_all}{', '.join(assets[:NAMED])}{more}"


def _late(status: Status, lag_s: float, now_s: float, late_after_s: float) -> Iterator[str]:
    if not status.is_silence:
        yield f"the newest cut is {as_duration(lag_s)} behind; late after {as_duration(late_after_s)}"
        return
    fresh = [check for check in status.checks if check.name == FRESH]
    # A table without a cut fails while others pass. Failures that are not warnings are reported elsewhere.
    if fresh and not any(check.passed or check.has_failed for check in fresh):
        newest = max(fresh, key=lambda check: check.at_s)
        yield f"silent for {as_duration(lag_s)}, and check {newest.describe(now_s)}"
