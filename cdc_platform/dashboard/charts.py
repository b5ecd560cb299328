"""Charts as numbers and paths, for the SVG of the templates.

A chart measures `WIDTH` by `HEIGHT` units and is stretched to its place. Its texts are HTML, which is not
stretched.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np

from cdc_platform.dashboard.partition_lanes import Bar, PartitionLanes
from cdc_platform.dashboard.read_lanes import ReadLane
from cdc_platform.dashboard.time_span import COLUMNS, TimeSpan, Values
from cdc_platform.model.base.timestamps import MICROS_PER_S, to_datetime

WIDTH: Final = 1000
HEIGHT: Final = 100
_COLUMN: Final = WIDTH / COLUMNS
_NICE: Final = (1, 2, 5, 10)
_NICE_SECONDS: Final = (10, 20, 30, 60, 120, 240, 600, 1200, 1800, 3600, 7200, 14_400, 43_200, 86_400)
TICKS: Final = (0.0, 0.5, 1.0)
_LANE: Final = 14
"""Height of a lane of partitions, and the bar's share of it."""
_BAR: Final = 8
_LEAST: Final = 2.0
"""Minimum width of a bar, so that it stays visible."""


@dataclass(frozen=True)
class Column:
    """A column of a chart that shows its value under the pointer; bar charts also draw it."""

    x: float
    width: float
    y: float
    height: float
    title: str


@dataclass(frozen=True)
class Chart:
    """A line with an area, or bars, over time; ``line`` and ``area`` are SVG paths."""

    line: str
    area: str
    columns: tuple[Column, ...]
    y_ticks: tuple[str, ...]
    x_ticks: tuple[str, ...]
    is_empty: bool


def draw_chart(
    values: Values, span: TimeSpan, describe: Callable[[float], str], find_top: Callable[[float], float]
) -> Chart:
    """Return a chart of one value for each column.

    Args:
        values: non-negative values; NaN where a column has none.
        span: the time that the values cover.
        describe: returns the text of a value.
        find_top: returns the top of the axis for the highest value.
    """
    finite = values[~np.isnan(values)]
    top = find_top(float(finite.max(initial=0.0)))
    heights = values / top * HEIGHT
    runs = list(_runs(heights))
    return Chart(
        line=" ".join(f"M{_path(run)}" for run in runs),
        area=" ".join(
            f"M{run[0][0]:.1f},{HEIGHT} L{_path(run)} L{run[-1][0]:.1f},{HEIGHT} Z" for run in runs
        ),
        columns=tuple(_columns(values, heights, span, describe)),
        y_ticks=tuple(describe(top * share) for share in TICKS),
        x_ticks=time_ticks(span),
        is_empty=not len(finite),
    )


def nice_top(highest: float) -> float:
    """Return the top of an axis: the next 1, 2 or 5 times a power of ten; 1 if all values are zero."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return float(next(factor * power for factor in _NICE if factor * power >= highest * (1 - 1e-9)))


def nice_seconds(longest: float) -> float:
    """Return the top of an axis of durations: whole seconds, minutes, hours or days."""
    days = nice_top(longest / _NICE_SECONDS[-1]) * _NICE_SECONDS[-1]
    wholes = (float(seconds) for seconds in _NICE_SECONDS if seconds >= longest)
    return nice_top(longest) if longest < _NICE_SECONDS[0] else next(wholes, days)


def time_ticks(span: TimeSpan) -> tuple[str, ...]:
    """Return the texts of the beginning, the middle and the end of a span."""
    length = span.end_micros - span.start_micros
    return tuple(as_tick(span.start_micros + int(length * share), length) for share in TICKS)


def _runs(heights: Values) -> Iterator[list[tuple[float, float]]]:
    """Yield the points of each stretch without a gap; a single point becomes a short line."""
    points = [
        ((index + 0.5) * _COLUMN, HEIGHT - height) if not np.isnan(height) else None
        for index, height in enumerate(heights)
    ]
    for is_gap, group in groupby(points, key=lambda point: point is None):
        if not is_gap:
            run = [point for point in group if point is not None]
            yield (
                run
                if len(run) > 1
                else [(run[0][0] - _COLUMN / 2, run[0][1]), (run[0][0] + _COLUMN / 2, run[0][1])]
            )


def _path(points: list[tuple[float, float]]) -> str:
    return " L".join(f"{x:.1f},{y:.2f}" for x, y in points)


def _columns(
    values: Values, heights: Values, span: TimeSpan, describe: Callable[[float], str]
) -> Iterator[Column]:
    for index, (value, height, end) in enumerate(zip(values, heights, span.ends, strict=True)):
        if not np.isnan(value):
            title = f"{as_time(int(end))}: {describe(float(value))}"
            yield Column(index * _COLUMN, _COLUMN, HEIGHT - float(height), float(height), title)


@dataclass(frozen=True)
class DrawnBar:
    """A partition as a rectangle; ``kind`` is `finished`, `live`, `waiting` or `watermark`."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str


@dataclass(frozen=True)
class PartitionChart:
    """Partitions as bars, their splits and merges as the lines of a path."""

    bars: tuple[DrawnBar, ...]
    branches: str
    height: int
    x_ticks: tuple[str, ...]
    shown: int
    total: int
    is_level: bool


def draw_partition_chart(lanes: PartitionLanes) -> PartitionChart:
    """Return the chart of partitions in lanes."""
    lines = (
        f"M{branch.start * WIDTH:.1f},{_middle(branch.start_lane)} "
        f"L{branch.end * WIDTH:.1f},{_middle(branch.end_lane)}"
        for branch in lanes.branches
    )
    return PartitionChart(
        bars=tuple(map(_draw_bar, lanes.bars)),
        branches=" ".join(lines),
        height=max(1, lanes.lanes) * _LANE,
        x_ticks=time_ticks(lanes.span),
        shown=len(lanes.bars),
        total=lanes.total,
        is_level=lanes.is_level,
    )


def _middle(lane: int) -> float:
    return lane * _LANE + _LANE / 2


def _draw_bar(bar: Bar) -> DrawnBar:
    partition = bar.partition
    state = "live" if partition.is_live else "finished" if partition.is_finished else "waiting"
    width = max((bar.end - bar.start) * WIDTH, _LEAST)
    title = (
        f"{partition.key}, {'holds the watermark' if bar.holds_watermark else state}: "
        f"{as_moment(partition.start_micros)} to {as_moment(partition.position_micros)}"
    )
    return DrawnBar(
        x=min(bar.start * WIDTH, WIDTH - width),
        y=bar.lane * _LANE + (_LANE - _BAR) / 2,
        width=width,
        height=_BAR,
        kind="watermark" if bar.holds_watermark else state,
        title=title,
    )


def draw_reads(lane: ReadLane, span: TimeSpan) -> tuple[Column, ...]:
    """Return a mark for each column in which cycles read something of a lane."""
    return tuple(
        Column(index * _COLUMN, _COLUMN, 0, HEIGHT, f"{as_time(int(end))}: {reads} read")
        for index, (reads, end) in enumerate(zip(lane.columns, span.ends, strict=True))
        if reads
    )


_DAY_MICROS: Final = 86_400 * MICROS_PER_S


def as_time(micros: int) -> str:
    """Return the time of day of a moment, in UTC."""
    return f"{to_datetime(micros):%H:%M:%S}"


def as_moment(micros: int) -> str:
    """Return the day and the time of a moment, in UTC."""
    return f"{to_datetime(micros):%Y-%m-%d %H:%M:%S} UTC"


def as_tick(micros: int, span_micros: int) -> str:
    """Return a time as text on a chart's axis, with the day if the span is longer than a day."""
    moment = to_datetime(micros)
    if span_micros > _DAY_MICROS:
        return f"{moment:%d %b %H:%M}"
    return f"{moment:%H:%M}" if span_micros > _DAY_MICROS // 24 else f"{moment:%H:%M:%S}"
