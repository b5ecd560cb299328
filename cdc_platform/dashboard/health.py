"""The health of a pipeline: one word, and the reasons for it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cdc_platform.dashboard.check_history import CheckFact
from cdc_platform.dashboard.texts import as_count, as_duration
from cdc_platform.pipeline.on_demand.status import Status


class Word(StrEnum):
    """The health of a pipeline; all but the first want somebody to look. Of several, the first counts."""

    HEALTHY = "Healthy"
    """Nothing is wrong that the lake or the checks know of."""
    UNKNOWN = "Unknown"
    """The lake cannot be read, or the pipeline has never run."""
    FAILING = "Failing"
    """A check has failed."""
    LATE = "Late"
    """The newest cut is further behind than it may be."""
    INCOMPLETE = "Incomplete"
    """Some of the source is in no table: records in quarantine, unread files, stuck partitions."""
    COPYING = "Copying"
    """An initial copy is going on."""
    STARTING = "Starting"
    """No cut has been published yet."""


@dataclass(frozen=True)
class Health:
    """The word, and what speaks for it, the gravest first; empty if all is well."""

    word: Word
    reasons: tuple[str, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether nobody has to look."""
        return self.word is Word.HEALTHY


def judge(
    status: Status, lag_s: float | None, checks: Sequence[CheckFact] | None, late_after_s: float
) -> Health:
    """Return the health of a pipeline.

    Args:
        status: where it stands.
        lag_s: the lag of its newest cut; None where there is no cut, or the source is silent and not behind.
        checks: the last results of its checks, None where they are not known.
        late_after_s: the longest lag of a pipeline that is not late.
    """
    findings = list(_findings(status, lag_s, checks or (), late_after_s))
    if not findings:
        return Health(Word.HEALTHY)
    order = list(Word)
    findings.sort(key=lambda finding: order.index(finding[0]))
    return Health(findings[0][0], tuple(reason for _, reason in findings))


def _findings(
    status: Status, lag_s: float | None, checks: Sequence[CheckFact], late_after_s: float
) -> Iterator[tuple[Word, str]]:
    for check in checks:
        if check.has_failed:
            yield Word.FAILING, f"check {check.name} failed"
    if lag_s is not None and lag_s > late_after_s:
        yield (
            Word.LATE,
            f"the newest cut is {as_duration(lag_s)} behind; late after {as_duration(late_after_s)}",
        )
    for stuck in status.stuck_partitions:
        yield Word.INCOMPLETE, f"partition {stuck.key} holds the watermark, {as_duration(stuck.age_s)} behind"
    if status.unread_files:
        yield Word.INCOMPLETE, f"{as_count(len(status.unread_files), 'file')} could not be read"
    if status.quarantined:
        yield Word.INCOMPLETE, f"{as_count(status.quarantined, 'record')} in quarantine"
    if status.copies:
        yield Word.COPYING, f"initial copy of {', '.join(status.copies)}"
    if status.cut is None:
        yield Word.STARTING, "no cut has been published yet"
