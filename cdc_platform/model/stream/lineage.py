"""The lineage of change stream partitions: a pure function of the reports of each cycle's windows.

CREATED (announced) > SCHEDULED (may be read) > RUNNING (has been read) > FINISHED (ended, has children), or
ENDED (ended without children)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from cdc_platform.errors import PartitionBoundsInvalid
from cdc_platform.model.base.names import ROOT_TOKEN, partition_key, readable_key
from cdc_platform.model.stream.read_windows import WindowOutcome, WindowReport


class PartitionState(StrEnum):
    """State of a partition, in order of progress; it never returns to an earlier state.

    The last two states are final.
    """

    CREATED = "created"
    """Announced, but some parent has not been read to its start; it holds the watermark at its start."""
    SCHEDULED = "scheduled"
    """It may be read: all parents have finished, or have been read beyond its start."""
    RUNNING = "running"
    """It has been read at least once."""
    FINISHED = "finished"
    """It ended, and its children continue it."""
    ENDED = "ended"
    """An end record ended it, and it has no children: its keys had moved to other partitions."""


_END_STATES: Final = {
    WindowOutcome.FINISHED: PartitionState.FINISHED,
    WindowOutcome.ENDED: PartitionState.ENDED,
}


@dataclass(frozen=True)
class Partition:
    """A partition; everything at or before its position has been read.

    ``continues_parents`` is True if its parents ended where it starts, and False if a parent continues after
    its start. It is None for the first partition, and in lakes written before this field existed.
    """

    token: str
    parent_tokens: tuple[str, ...]
    state: PartitionState
    start_micros: int
    position_micros: int
    created_cycle: int
    running_cycle: int | None = None
    finished_cycle: int | None = None
    continues_parents: bool | None = None

    @property
    def key(self) -> str:
        """The short name that Dagster and people use for it."""
        if self.token and not self.parent_tokens:
            return readable_key(self.token)
        return partition_key(self.token, self.start_micros)

    @property
    def is_live(self) -> bool:
        """Whether it may be read now."""
        return self.state in (PartitionState.SCHEDULED, PartitionState.RUNNING)

    @property
    def is_finished(self) -> bool:
        """Whether the partition has been read to its end, with or without children."""
        return self.state in _END_STATES.values()


@dataclass(frozen=True)
class ChildAnnouncement:
    """The announcement of a partition by another one, which either ends there or continues."""

    cycle: int
    start_micros: int
    token: str
    parent_tokens: tuple[str, ...]
    continues_parents: bool = True

    @classmethod
    def of(
        cls,
        cycle: int,
        start_micros: int,
        child: tuple[str, Iterable[str] | None],
        announced_by: str,
        *,
        continues_parents: bool,
    ) -> "ChildAnnouncement":
        """Return the announcement of a token and its parents, taken from a partition's record.

        A token without parents is a child of the partition that announces it: the first partitions are
        children of the query without a token.
        """
        token, parents = child
        parent_tokens = tuple(parent for parent in parents or () if parent)
        return cls(cycle, start_micros, token, parent_tokens or (announced_by,), continues_parents)


@dataclass(frozen=True)
class Lineage:
    """All partitions that are still needed, by token, after a cycle."""

    partitions: Mapping[str, Partition]
    cycle: int


def begin(start_micros: int) -> Lineage:
    """Return the lineage of a stream to read from `start_micros` on, inclusive."""
    root = Partition(
        token=ROOT_TOKEN,
        parent_tokens=(),
        state=PartitionState.SCHEDULED,
        start_micros=start_micros,
        position_micros=start_micros - 1,
        created_cycle=0,
    )
    return Lineage({ROOT_TOKEN: root}, cycle=0)


def advance(
    lineage: Lineage,
    cycle: int,
    windows: Sequence[WindowReport],
    children: Sequence[ChildAnnouncement],
) -> Lineage:
    """Return the lineage after a cycle; a cycle that the lineage already contains changes nothing.

    The order of windows and announcements does not matter, nor do repeated announcements. One cycle
    may have read several generations, if all but the last one ended in it.

    Raises:
        PartitionBoundsInvalid: A window belongs to a partition that may not be read yet, or leaves a gap; or
            a partition is announced again after its end, or before its known start.
    """
    if cycle <= lineage.cycle:
        return lineage
    partitions = dict(lineage.partitions)
    for child in sorted(
        children, key=lambda child: (child.cycle, child.start_micros, child.token, child.parent_tokens)
    ):
        if child.cycle <= lineage.cycle:
            continue
        if child.token not in partitions:
            partitions[child.token] = _new_partition(child)
        _check_announcement(partitions[child.token], child)
    live_partitions = {partition.token: partition for partition in _unfinished(partitions)}
    unread = sorted(windows, key=lambda report: (report.token, report.start_exclusive_micros))
    # A partition that announces itself has no parent.
    _schedule(partitions, live_partitions)
    while unread:
        generation = [report for report in unread if _is_readable(partitions, report.token)]
        postponed_reports = [report for report in unread if not _is_readable(partitions, report.token)]
        if not generation:
            raise PartitionBoundsInvalid(
                "A cycle read a window of a partition that is unknown, or whose parents have not ended. This "
                f"is a bug of the platform; report this partition token: {unread[0].token!r}",
            )
        for report in generation:
            _store(partitions, live_partitions, _with_report(partitions[report.token], report, cycle))
        _schedule(partitions, live_partitions)
        unread = postponed_reports
    _schedule(partitions, live_partitions)
    return Lineage(partitions, cycle)


def live(lineage: Lineage) -> tuple[Partition, ...]:
    """Return the partitions that may be read now, the furthest behind first."""
    live_partitions = (partition for partition in lineage.partitions.values() if partition.is_live)
    return tuple(sorted(live_partitions, key=lambda partition: (partition.position_micros, partition.key)))


def watermark_micros(lineage: Lineage) -> int | None:
    """Return the moment up to which everything has been read; None if all partitions have finished.

    It never goes back: a child begins where its parents ended.
    """
    return min((partition.position_micros for partition in _unfinished(lineage.partitions)), default=None)


def prune(lineage: Lineage, keep_after_micros: int) -> Lineage:
    """Return the lineage without finished partitions that ended before a moment and are fully continued.

    A partition stays until each of its children has been read, so neither the watermark nor a state changes.
    A partition that ended without children needs no continuation.
    """
    partitions = lineage.partitions.values()
    parents = {parent for child in partitions for parent in child.parent_tokens}
    awaited_parents = {
        parent for child in partitions if child.running_cycle is None for parent in child.parent_tokens
    }
    tokens = {
        partition.token
        for partition in partitions
        if partition.is_finished and partition.position_micros < keep_after_micros
        if partition.token not in awaited_parents
        if partition.state is PartitionState.ENDED or partition.token in parents
    }
    return replace(lineage, partitions={t: p for t, p in lineage.partitions.items() if t not in tokens})


def _new_partition(child: ChildAnnouncement) -> Partition:
    # A partition that names only itself as a parent has none.
    parents = () if child.parent_tokens == (child.token,) else child.parent_tokens or (ROOT_TOKEN,)
    return Partition(
        token=child.token,
        parent_tokens=tuple(sorted(set(parents))),
        state=PartitionState.CREATED,
        start_micros=child.start_micros,
        position_micros=child.start_micros - 1,
        created_cycle=child.cycle,
        continues_parents=child.continues_parents,
    )


def _check_announcement(partition: Partition, child: ChildAnnouncement) -> None:
    """Raise if a partition is announced again with an earlier start, or with a start after its end."""
    # A partition that names only itself states where to read it from.
    if child.start_micros < partition.start_micros and child.parent_tokens != (child.token,):
        raise PartitionBoundsInvalid(
            f"Partition `{partition.key}` is announced again with an earlier start, so the records since "
            f"that start would be lost; report this: {child.start_micros}",
        )
    if partition.is_finished and child.start_micros > partition.position_micros + 1:
        raise PartitionBoundsInvalid(
            f"Partition `{partition.key}` is announced again with a start after its end, so its records "
            f"would be lost; report this: {child.start_micros}",
        )


def _is_readable(partitions: Mapping[str, Partition], token: str) -> bool:
    partition = partitions.get(token)
    return partition is not None and partition.state is not PartitionState.CREATED


def _store(partitions: dict[str, Partition], live_ones: dict[str, Partition], partition: Partition) -> None:
    partitions[partition.token] = partition
    if partition.is_finished:
        live_ones.pop(partition.token, None)
    else:
        live_ones[partition.token] = partition


def _with_report(partition: Partition, report: WindowReport, cycle: int) -> Partition:
    """Return the partition advanced by a report; raise if the report skips unread records."""
    if report.start_exclusive_micros > partition.position_micros:
        raise PartitionBoundsInvalid(
            f"A window of partition `{partition.key}` begins after the position of the partition, so the "
            f"records in between would be lost; report this: {report.start_exclusive_micros}",
        )
    state = partition.state if partition.is_finished else _END_STATES.get(report.outcome)
    return replace(
        partition,
        state=state or PartitionState.RUNNING,
        position_micros=max(partition.position_micros, report.end_inclusive_micros),
        running_cycle=partition.running_cycle or cycle,
        finished_cycle=(partition.finished_cycle or cycle) if state is not None else None,
    )


def _schedule(partitions: dict[str, Partition], live_partitions: dict[str, Partition]) -> None:
    """Schedule the unfinished partitions whose parents have all been read to the partition's start."""
    lowest = min((partition.position_micros for partition in live_partitions.values()), default=None)
    children = [
        partition for partition in live_partitions.values() if partition.state is PartitionState.CREATED
    ]
    for partition in children:
        if _may_start(partition, partitions, lowest):
            _store(partitions, live_partitions, replace(partition, state=PartitionState.SCHEDULED))


def _may_start(partition: Partition, partitions: Mapping[str, Partition], lowest: int | None) -> bool:
    """Return whether all parents have finished, including parents that are not announced yet.

    A parent that continues after the partition's start need only have been read to that start.

    One parent of a merge may announce the child while another parent is still unknown, because the partition
    that will announce *it* is behind. If no unfinished partition is behind the child's start, all parents
    are known: a parent that is not listed then has been pruned.
    """
    parents = [partitions.get(token) for token in partition.parent_tokens]
    start = partition.start_micros
    starts_within = not partition.continues_parents
    if not all(
        parent is None or parent.is_finished or (starts_within and parent.position_micros >= start)
        for parent in parents
    ):
        return False
    return None not in parents or lowest == partition.position_micros


def _unfinished(partitions: Mapping[str, Partition]) -> list[Partition]:
    return [partition for partition in partitions.values() if not partition.is_finished]
