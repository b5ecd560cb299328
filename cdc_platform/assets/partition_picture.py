"""The partitions of a source as a picture: time from left to right, one line each, with splits and merges."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from cdc_platform.dashboard.partition_lanes import Bar, PartitionLanes
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.stream.lineage import PartitionState

WIDTH: Final = 900
LANE_HEIGHT: Final = 22
MARGIN: Final = 14
FOOT_HEIGHT: Final = 46

COLOURS: Final[Mapping[PartitionState, str]] = {
    # Readable on a light ground and on a dark one.
    PartitionState.CREATED: "#b0b6c0",
    PartitionState.SCHEDULED: "#7aa7e8",
    PartitionState.RUNNING: "#2f7de1",
    PartitionState.FINISHED: "#8a93a2",
    PartitionState.ENDED: "#8a93a2",
}
HOLDS_WATERMARK: Final = "#e07b00"
LEGEND: Final = (
    (COLOURS[PartitionState.FINISHED], "has ended"),
    (COLOURS[PartitionState.RUNNING], "being read"),
    (COLOURS[PartitionState.SCHEDULED], "to be read"),
    (COLOURS[PartitionState.CREATED], "waits for its parents"),
    (HOLDS_WATERMARK, "holds the watermark"),
)


def draw_picture(lanes: PartitionLanes) -> str:
    """Return partitions in lanes as Markdown with an embedded image; empty if there are none."""
    if not lanes.bars:
        return ""
    image = base64.b64encode(_svg(lanes).encode()).decode()
    return f"![Partitions over time, with splits and merges](data:image/svg+xml;base64,{image})"


def _svg(lanes: PartitionLanes) -> str:
    height = lanes.lanes * LANE_HEIGHT + FOOT_HEIGHT + MARGIN
    shapes = "".join(_shapes(lanes.bars))
    texts = "".join(_texts(height, lanes.span.start_micros, lanes.span.end_micros))
    style = 'font-family="sans-serif" font-size="11"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" {style}>{shapes}{texts}</svg>'
    )


def _shapes(bars: Sequence[Bar]) -> Iterator[str]:
    by_token = {bar.partition.token: bar for bar in bars}
    for bar in bars:
        partition, start, stop, height = bar.partition, _x(bar.start), _x(bar.end), _y(bar.lane)
        for parent in (by_token[token] for token in partition.parent_tokens if token in by_token):
            yield _line(_x(min(parent.end, bar.start)), _y(parent.lane), start, height, "#8a93a2", 1)
        colour = HOLDS_WATERMARK if bar.holds_watermark else COLOURS[partition.state]
        yield f"<g><title>{escape(partition.key)}</title>"
        yield f"{_line(start, height, max(stop, start + 3), height, colour, 6)}</g>"


def _x(share: float) -> float:
    return round(MARGIN + share * (WIDTH - 2 * MARGIN), 1)


def _y(lane: int) -> float:
    return MARGIN + (lane + 0.5) * LANE_HEIGHT


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: int) -> str:
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width}" '
        'stroke-linecap="round"/>'
    )


def _texts(height: int, begin: int, end: int) -> Iterator[str]:
    top = height - FOOT_HEIGHT + 12
    yield f'<text x="{MARGIN}" y="{top}" fill="#8a93a2">{to_rfc3339(begin)}</text>'
    yield f'<text x="{WIDTH - MARGIN}" y="{top}" fill="#8a93a2" text-anchor="end">{to_rfc3339(end)}</text>'
    for number, (colour, text) in enumerate(LEGEND):
        left = MARGIN + number * 150
        yield _line(left + 3, top + 18, left + 15, top + 18, colour, 6)
        yield f'<text x="{left + 24}" y="{top + 22}" fill="#8a93a2">{text}</text>'
