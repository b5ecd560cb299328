"""Partitions that hold the watermark: those furthest behind, and those that cannot be read further."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cdc_platform.model.base.timestamps import MICROS_PER_S, to_rfc3339
from cdc_platform.model.stream.lineage import Lineage, Partition
from cdc_platform.model.stream.read_windows import WindowOutcome, WindowReport


def holding_watermark(partitions: Collection[Partition]) -> set[str]:
    """Return the tokens of the unfinished partitions that are furthest behind, all of them if level."""
    position = min((part.position_micros for part in partitions if not part.is_finished), default=0)
    return {part.token for part in partitions if not part.is_finished and part.position_micros == position}


@dataclass(frozen=True)
class StuckPartition:
    """A partition that holds the watermark at its position.

    ``age_s`` is its distance from the end of its cycle, in seconds of the source's time; ``error`` is the
    error that ended its read, None if the partition sent nothing.
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
                f"Partition `{self.key}` could not be read further, {self.age_s:.1f} s behind the others. It "
                f"holds the watermark at {position}; every cycle reads it again. {self.error}"
            )
        return (
            f"Partition `{self.key}` is stuck: two queries from {position} on returned nothing. It holds the "
            f"watermark there, {self.age_s:.1f} s behind the end of the cycle; every cycle reads it again"
        )


def find_stuck(
    lineage: Lineage, reports: Iterable[WindowReport], end_micros: int
) -> tuple[StuckPartition, ...]:
    """Return the partitions that a cycle could not read further, the furthest behind first.

    They do not include a partition that fell silent after it sent records: it advances, which is normal while
    a pipeline catches up, and the next cycle continues there.

    Args:
        lineage: the partitions, before the cycle or after it.
        reports: results of the cycle's windows.
        end_micros: the planned end of the cycle's windows.
    """
    partitions = [
        StuckPartition(
            key=lineage.partitions[report.token].key,
            position_micros=report.end_inclusive_micros,
            age_s=(end_micros - report.end_inclusive_micros) / MICROS_PER_S,
            error=None if report.is_silent else report.error,
        )
        for report in reports
        if report.outcome is WindowOutcome.INTERRUPTED and report.token in lineage.partitions
        if not (report.is_silent and report.has_moved)
    ]
    return tuple(sorted(partitions, key=lambda stuck: (stuck.position_micros, stuck.key)))
