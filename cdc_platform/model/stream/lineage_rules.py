"""Rules of a sound lineage of partitions."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.stream.lineage import Lineage, Partition, PartitionState
from cdc_platform.model.stream.read_windows import WindowOutcome, WindowReport


def violations(lineage: Lineage) -> list[str]:
    """Return the violated rules, one text for each; empty if the lineage is sound.

    A finished partition has children. A child that continues its parents starts once, at the end of its
    parents and after all of them finished, and no parent is read beyond that. A partition whose parent goes
    on starts after that parent has been read beyond its start. An unread partition holds the watermark at
    its start.
    """
    problems: list[str] = []
    continued = {parent for child in lineage.partitions.values() for parent in child.parent_tokens}
    for partition in lineage.partitions.values():
        if partition.state is PartitionState.FINISHED and partition.token not in continued:
            problems.append(f"Partition `{partition.key}` is finished and has no children")
        problems += _position_violations(partition)
        for token in partition.parent_tokens:
            if token in lineage.partitions:
                problems += _parent_violations(partition, lineage.partitions[token])
    return problems


def _position_violations(partition: Partition) -> list[str]:
    before_start = partition.start_micros - 1
    if partition.running_cycle is None and partition.position_micros != before_start:
        return [f"Partition `{partition.key}` has not been read and does not hold the watermark at its start"]
    if partition.position_micros < before_start:
        return [f"Partition `{partition.key}` has a position before its start"]
    return []


def _parent_violations(child: Partition, parent: Partition) -> list[str]:
    if parent.state is not PartitionState.FINISHED:
        if child.continues_parents and parent.position_micros >= child.start_micros:
            return [f"Partition `{parent.key}` was read beyond the start of its child `{child.key}`"]
        return _running_parent_violations(child, parent)
    problems: list[str] = []
    if child.running_cycle is not None and child.running_cycle < (parent.finished_cycle or 0):
        problems.append(f"Partition `{child.key}` was read before its parent `{parent.key}` ended")
    gap_micros = child.start_micros - 1 - parent.position_micros
    # The partition that lists those of a placement may be older than they are.
    if gap_micros < 0 or (gap_micros > 0 and child.continues_parents is not False):
        problems.append(f"Partition `{child.key}` does not start where its parent `{parent.key}` ended")
    return problems


def _running_parent_violations(child: Partition, parent: Partition) -> list[str]:
    """Return the violations of a parent that continues after the child's start or ended without children."""
    if parent.position_micros >= child.start_micros:
        return []
    if parent.is_finished:
        return [f"Partition `{child.key}` starts after its parent `{parent.key}` had ended"]
    if child.state is not PartitionState.CREATED:
        return [f"Partition `{child.key}` was started before its parent `{parent.key}` was read that far"]
    return []


_MICROS_PER_S: Final = 1_000_000


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
            age_s=(end_micros - report.end_inclusive_micros) / _MICROS_PER_S,
            error=None if report.is_silent else report.error,
        )
        for report in reports
        if report.outcome is WindowOutcome.INTERRUPTED and report.token in lineage.partitions
        if not (report.is_silent and report.has_moved)
    ]
    return tuple(sorted(partitions, key=lambda stuck: (stuck.position_micros, stuck.key)))
