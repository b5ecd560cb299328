"""Partitions of a change stream as bars over time, in lanes, with lines from parents to children."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cdc_platform.dashboard.time_span import TimeSpan
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.stream.lineage import Lineage, Partition
from cdc_platform.model.stream.watermark_holders import holding_watermark

SHOWN: Final = 120
"""Maximum number of partitions in the chart: the newest, and always one that holds the watermark."""


@dataclass(frozen=True)
class Bar:
    """A partition from its start to its position, as shares of the chart's width."""

    partition: Partition
    lane: int
    start: float
    end: float
    holds_watermark: bool


@dataclass(frozen=True)
class Branch:
    """A line from a parent to the start of its child, in another lane.

    It begins at the parent's end, or at the child's start if the parent continues.
    """

    start: float
    start_lane: int
    end: float
    end_lane: int


@dataclass(frozen=True)
class PartitionLanes:
    """The drawn partitions, their time span, and the number of all partitions.

    ``is_level`` says that no partition is further than another, so that all of them hold the watermark.
    """

    bars: tuple[Bar, ...]
    branches: tuple[Branch, ...]
    lanes: int
    span: TimeSpan
    total: int
    is_level: bool


def draw_partitions(lineage: Lineage, max_partitions: int = SHOWN) -> PartitionLanes:
    """Return the newest partitions in lanes: a child continues its parent's lane if that is free."""
    partitions = [*lineage.partitions.values()]
    # Until the root has children, it is all that is read.
    parts = [part for part in partitions if part.token != ROOT_TOKEN] or partitions
    blocking = holding_watermark(parts)
    shown_bars = _newest(parts, blocking, max_partitions)
    # Time without reads would push all bars to the left.
    last_micros = max((part.position_micros for part in shown_bars), default=0)
    first_micros = min((part.start_micros for part in shown_bars), default=0)
    span = TimeSpan(first_micros, max(last_micros, first_micros + 1))
    lanes = assign_lanes(shown_bars)
    bars = {
        part.token: Bar(
            part,
            lanes[part.token],
            _share(span, part.start_micros),
            _share(span, part.position_micros),
            part.token in blocking,
        )
        for part in shown_bars
    }
    lane_count = max(lanes.values(), default=-1) + 1
    is_level = 0 < len(blocking) == sum(not part.is_finished for part in parts)
    return PartitionLanes(
        tuple(bars.values()), tuple(_branches(bars)), lane_count, span, len(parts), is_level
    )


def _newest(
    partitions: Sequence[Partition], blocking: Collection[str], max_partitions: int
) -> list[Partition]:
    newest = sorted(partitions, key=lambda part: (part.start_micros, part.token))[-max_partitions:]
    if not blocking or any(part.token in blocking for part in newest):
        return newest
    return [next(part for part in partitions if part.token in blocking), *newest[1:]]


def _share(span: TimeSpan, micros: int) -> float:
    share = (micros - span.start_micros) / (span.end_micros - span.start_micros)
    return min(1.0, max(0.0, share))


def assign_lanes(partitions: Iterable[Partition]) -> dict[str, int]:
    """Return the lane of each partition, by token: a parent's lane if it is free, else the first free one.

    Partitions must be ordered by start.
    """
    lanes: dict[str, int] = {}
    free_from: list[int | None] = []
    """End of each lane; None while its partition continues."""
    for part in partitions:
        free = [lane for lane, end in enumerate(free_from) if end is not None and end <= part.start_micros]
        of_parents = [lanes[token] for token in part.parent_tokens if token in lanes]
        lane = next((lane for lane in of_parents if lane in free), free[0] if free else len(free_from))
        if lane == len(free_from):
            free_from.append(None)
        free_from[lane] = part.position_micros if part.is_finished else None
        lanes[part.token] = lane
    return lanes


def _branches(bars: dict[str, Bar]) -> Iterable[Branch]:
    for child in bars.values():
        parents = (bars[token] for token in child.partition.parent_tokens if token in bars)
        for parent in parents:
            if parent.lane != child.lane:
                yield Branch(min(parent.end, child.start), parent.lane, child.start, child.lane)
