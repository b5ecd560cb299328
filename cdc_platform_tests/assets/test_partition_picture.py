"""The picture of partitions: what is drawn, and in which colour."""

import base64
from xml.etree import ElementTree as ET

import dagster as dg

from cdc_platform.assets.partition_picture import COLOURS, HOLDS_WATERMARK, LEGEND, draw_picture
from cdc_platform.dashboard.partition_lanes import draw_partitions
from cdc_platform.metadata import describe_lineage
from cdc_platform.model.stream.lineage import Lineage, Partition, PartitionState, begin

SECOND = 1_000_000
SVG = "{http://www.w3.org/2000/svg}"
RUNNING, FINISHED = PartitionState.RUNNING, PartitionState.FINISHED


def partition(token: str, start_s: int, position_s: int, state: PartitionState, *parents: str) -> Partition:
    """Return a partition of some seconds."""
    return Partition(token, parents, state, start_s * SECOND, position_s * SECOND, 1)


def picture_of(partitions: list[Partition]) -> ET.Element:
    """Return the SVG of partitions."""
    lineage = Lineage({partition.token: partition for partition in partitions}, cycle=1)
    markdown = draw_picture(draw_partitions(lineage))
    return ET.fromstring(base64.b64decode(markdown.split("base64,")[1].rstrip(")")))  # noqa: S314  our own


def drawn(partitions: list[Partition]) -> tuple[list[str], int]:
    """Return the colours of the partitions in a picture, and how many lines join them."""
    picture = picture_of(partitions)
    colours = [line.get("stroke", "") for line in picture.iterfind(f"{SVG}g/{SVG}line")]
    return colours, len(list(picture.iterfind(f"{SVG}line"))) - len(LEGEND)


def test_a_split_and_a_merge_are_lines() -> None:
    """Each partition is drawn once, with a line to each parent; what lags behind the others is marked."""
    partitions = [
        partition("a", 0, 10, FINISHED),
        partition("b", 10, 20, RUNNING, "a"),
        partition("c", 10, 15, RUNNING, "a"),
        partition("d", 12, 20, RUNNING, "b", "c"),
    ]
    running = COLOURS[RUNNING]
    assert drawn(partitions) == ([COLOURS[FINISHED], running, HOLDS_WATERMARK, running], 4)


def test_lines_go_forwards() -> None:
    """A line to a child that starts while its parent continues begins at that start."""
    picture = picture_of([partition("a", 0, 20, RUNNING), partition("b", 10, 20, RUNNING, "a")])
    line = next(picture.iterfind(f"{SVG}line"))
    assert line.get("x1") == line.get("x2")


def test_where_all_are_level_all_hold_the_watermark() -> None:
    """A stream that is read up to its present has no partition that is further than another."""
    partitions = [partition("a", 0, 20, RUNNING), partition("b", 0, 20, RUNNING)]
    assert drawn(partitions) == ([HOLDS_WATERMARK] * 2, 0)


def test_without_partitions_there_is_no_picture() -> None:
    """A lineage that knows nothing yet is shown as nothing."""
    assert draw_picture(draw_partitions(Lineage({}, cycle=0))) == ""


def test_a_root_without_children_is_drawn() -> None:
    """Debezium's events are one partition, and a change stream begins with one: both have a picture."""
    picture = describe_lineage(begin(SECOND))["Picture"]
    assert isinstance(picture, dg.MarkdownMetadataValue)
    assert "data:image/svg+xml;base64," in (picture.md_str or "")


def test_a_partition_is_drawn_in_every_state() -> None:
    """Every state has a colour, those of both partition modes included."""
    partitions = [partition(state.value, 0, 20, state) for state in PartitionState]
    partitions.append(partition("behind", 0, 10, RUNNING))
    colours, _ = drawn(partitions)
    assert sorted([*COLOURS.values(), HOLDS_WATERMARK]) == sorted(colours)
