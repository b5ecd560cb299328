"""Stuck partitions: a cycle gets nothing from them, or their reads fail."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.stream.lineage import Lineage
from cdc_platform.model.stream.read_windows import WindowOutcome, WindowReport

_MICROS_PER_S: Final = 1_000_000


@dataclass(frozen=True)
class StuckPartition:
    """A partition that holds the watermark at its position.

    ``age_s`` is how far it is behind the end of its cycle, in seconds of the source's time; ``error`` is why
    its read ended, None where nothing came.
    """

    key: str
    position_micros: int
    age_s: float
    error: str | None = None

    def describe(self) -> str:
        """Return a sentence that names it, with its age."""
        position = to_rfc3339(self.position_micros)
        if self.error is not None:
            return (
                f"Partition `{self.key}` could not be read on, {self.age_s:.1f} s behind the others; it "
                f"holds the watermark at {position}, and is asked again with every cycle. {self.error}"
            )
        return (
            f"Partition `{self.key}` is stuck: it sent nothing when it was asked twice for what follows "
            f"{position}. It holds the watermark there, {self.age_s:.1f} s behind the end of the cycle, and "
            "every cycle asks it again"
        )


def find_stuck(
    lineage: Lineage, reports: Iterable[WindowReport], end_micros: int
) -> tuple[StuckPartition, ...]:
    """Return the partitions that a cycle could not read further, the one that is furthest behind first.

    A partition that fell silent after it had sent something is not among them: it moves, as happens while a
    pipeline catches up, and the next cycle continues there.

    Args:
        lineage: the partitions, before the cycle or after it.
        reports: what became of the cycle's windows.
        end_micros: the planned end of the cycle's windows.
    """
    partitions = [
        StuckPartition(
            key=lineage.partitions[report.token].key,
            position_micros=report.end_inclusive_micros,
            age_s=(end_micros - report.end_inclusive_micros) / _MICROS_PER_S,
            error=None if report.is_silent else report.error,
        )
        for report in reports
        if report.outcome is WindowOutcome.INTERRUPTED and report.token in lineage.partitions
        if not (report.is_silent and report.has_moved)
    ]
    return tuple(sorted(partitions, key=lambda stuck: (stuck.position_micros, stuck.key)))
