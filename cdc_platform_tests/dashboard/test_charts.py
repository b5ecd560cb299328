"""The numbers behind the charts: lag, rates, lanes, axes and texts."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from cdc_platform.dashboard.charts import draw_chart, draw_partition_chart, nice_seconds, nice_top
from cdc_platform.dashboard.cut_history import CutHistory, lag_by_column, publication_by_column
from cdc_platform.dashboard.partition_lanes import SHOWN, draw_partitions
from cdc_platform.dashboard.read_lanes import folder_of
from cdc_platform.dashboard.time_span import COLUMNS, TimeSpan
from cdc_platform.lake.state.copies import BatchTiming, CopyPlan, CopyProgress
from cdc_platform.model.base.quantities import as_duration
from cdc_platform.model.stream.lineage import Lineage, Partition, PartitionState
from cdc_platform.model.stream.watermark_holders import holding_watermark
from cdc_platform.pipeline.on_demand.status import CopyStatus

SECOND = 1_000_000
SPAN = TimeSpan(0, COLUMNS * SECOND)
"""A span whose columns are seconds."""


def history(*cuts: tuple[float, float]) -> CutHistory:
    """Return cuts by the seconds when each was published and of its position."""
    published, positions = (np.array(seconds) * SECOND for seconds in zip(*cuts, strict=True))
    return CutHistory(published.astype(np.int64), positions.astype(np.int64), np.arange(1, len(cuts) + 1))


def test_the_lag_grows_until_the_next_cut() -> None:
    """A column has the longest lag in it: right before a cut, it is that of the cut before."""
    lags = lag_by_column(history((10, 8), (20, 19)), SPAN)
    assert np.isnan(lags[:9]).all()
    assert list(lags[9:12]) == [2, 3, 4]
    assert list(lags[18:21]) == [11, 12, 2]
    assert lags[-1] == COLUMNS - 19


def test_an_outage_before_the_span_is_seen() -> None:
    """The lag of the cut that was the newest when the span began continues until the next one."""
    lags = lag_by_column(history((-100, -101), (50, 49)), SPAN)
    assert list(lags[:2]) == [102.0, 103.0]
    assert list(lags[48:51]) == [150.0, 151.0, 2.0]


def test_events_have_no_lag_while_nothing_comes() -> None:
    """Of files and topics each cut shows how long it took, and there is nothing between cuts."""
    seconds = publication_by_column(history((10, 8), (20, 19)), SPAN)
    assert {int(column): seconds[column] for column in np.flatnonzero(~np.isnan(seconds))} == {
        9: 2.0,
        19: 1.0,
    }


def test_a_span_begins_with_its_data() -> None:
    """A chart begins no earlier than its pipeline, and covers a minute at least."""
    day = TimeSpan.before(10**15, hours=24)
    assert TimeSpan(10**15 - 600 * SECOND, 10**15) == day.since(10**15 - 600 * SECOND)
    assert TimeSpan(10**15 - 60 * SECOND, 10**15) == day.since(10**15 - SECOND)
    assert day == day.since(0)


def test_a_gap_is_no_line() -> None:
    """Unknown values are not drawn, but a single value is visible."""
    values = np.full(COLUMNS, np.nan)
    values[0], values[10:12] = 5, 10
    chart = draw_chart(values, SPAN, as_duration, nice_seconds)
    assert chart.line.count("M") == 2
    assert [column.title for column in chart.columns] == ["00:00:01: 5 s", "00:00:11: 10 s", "00:00:12: 10 s"]
    assert chart.y_ticks == ("0 s", "5 s", "10 s")
    assert draw_chart(np.full(COLUMNS, np.nan), SPAN, as_duration, nice_seconds).is_empty


@pytest.mark.parametrize(("highest", "top"), [(0, 1), (0.03, 0.05), (1, 1), (7, 10), (450, 500)])
def test_axes_end_at_round_numbers(highest: float, top: float) -> None:
    """The top of an axis is the next of 1, 2 and 5 times a power of ten."""
    assert top == pytest.approx(nice_top(highest))


@pytest.mark.parametrize(
    ("longest", "text"), [(0.4, "0.5 s"), (12, "20 s"), (170, "4 min"), (4000, "2 h"), (200_000, "5 d")]
)
def test_axes_of_durations_end_at_round_durations(longest: float, text: str) -> None:
    """The top of an axis of durations is a round number of seconds, minutes, hours or days."""
    assert text == as_duration(nice_seconds(longest))


def partition(
    token: str, parents: tuple[str, ...], start_s: int, end_s: int, *, ended: bool = True
) -> Partition:
    """Return a partition that has been read from one second to another."""
    state = PartitionState.FINISHED if ended else PartitionState.RUNNING
    return Partition(token, parents, state, start_s * SECOND, end_s * SECOND, 1, 1, 2 if ended else None)


def lineage(*partitions: Partition) -> Lineage:
    """Return partitions as a lineage."""
    return Lineage({part.token: part for part in partitions}, 1)


def test_a_child_continues_in_the_lane_of_its_parent() -> None:
    """A move stays in its lane, a split and a merge are lines to other lanes; one bar holds the watermark."""
    drawn = draw_partitions(
        lineage(
            partition("a", ("",), 0, 10),
            partition("b", ("a",), 10, 20),
            partition("c", ("b",), 20, 30),
            partition("d", ("b",), 20, 30),
            partition("e", ("c", "d"), 30, 90, ended=False),
            partition("f", ("",), 0, 80, ended=False),
        )
    )
    assert {bar.partition.token: bar.lane for bar in drawn.bars} == {
        "a": 0,
        "b": 0,
        "c": 0,
        "d": 2,
        "e": 0,
        "f": 1,
    }
    assert [(branch.start_lane, branch.end_lane) for branch in drawn.branches] == [(0, 2), (2, 0)]
    assert [bar.partition.token for bar in drawn.bars if bar.holds_watermark] == ["f"]
    assert (drawn.lanes, drawn.total) == (3, 6)


@pytest.mark.parametrize(
    ("ends", "holders"), [((20, 20), ["a", "b"]), ((20, 10), ["b"]), ((10, 10, 20), ["a", "b"])]
)
def test_all_that_are_furthest_behind_hold_the_watermark(ends: tuple[int, ...], holders: list[str]) -> None:
    """Where all are level, all hold it, and the chart says so; the picture of the asset shows the same."""
    names = "abc"[: len(ends)]
    parts = [partition(name, ("",), 0, end, ended=False) for name, end in zip(names, ends, strict=True)]
    drawn = draw_partitions(lineage(*parts))
    assert [bar.partition.token for bar in drawn.bars if bar.holds_watermark] == holders
    assert [bar.kind for bar in draw_partition_chart(drawn).bars].count("watermark") == len(holders)
    assert draw_partition_chart(drawn).is_level == (holders == [*names])
    assert holding_watermark(parts) == set(holders)


class CountedPartitions(list[Partition]):
    """Partitions that count how often they are iterated."""

    passes = 0

    def __iter__(self) -> Iterator[Partition]:
        self.passes += 1
        return super().__iter__()


def test_many_level_partitions_are_looked_at_a_few_times() -> None:
    """Which ones hold the watermark is found in a fixed number of passes: each cycle asks for all of them."""
    parts = [partition(f"p{number}", ("",), 0, 20 - number % 2, ended=False) for number in range(40)]
    counted = CountedPartitions(parts)
    assert len(holding_watermark(counted)) == len(parts) // 2
    assert counted.passes <= 3


def test_lines_go_forwards() -> None:
    """A line to a child that starts while its parent continues begins at that start."""
    drawn = draw_partitions(
        lineage(partition("a", ("",), 0, 80, ended=False), partition("b", ("a",), 40, 80, ended=False))
    )
    assert [(branch.start, branch.end) for branch in drawn.branches] == [(0.5, 0.5)]


def test_of_many_partitions_the_newest_are_drawn() -> None:
    """For any number of partitions, a bounded number is drawn, including the one that holds the watermark."""
    old = partition("old", ("",), 0, 1, ended=False)
    many = (partition(f"{number:04}", ("",), number, number + 1) for number in range(1, 1000))
    drawn = draw_partitions(lineage(old, *many))
    assert (len(drawn.bars), drawn.total) == (SHOWN, 1000)
    assert [bar.partition.token for bar in drawn.bars if bar.holds_watermark] == ["old"]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("public_users/2026/11/26/10/05/part-1.avro", "public_users"),
        ("bank.public.accounts/3", "bank.public.accounts"),
        ("events.jsonl", "files"),
        ("a/b/c.jsonl", "a/b"),
    ],
)
def test_what_was_read_has_a_place(path: str, place: str) -> None:
    """Files are shown by folder, without those of days and hours, and topic partitions by topic."""
    assert place == folder_of(path)


def test_the_time_left_of_a_copy() -> None:
    """The last batches say how fast a copy is, and so how long the chunks take that are left."""
    plan = CopyPlan("accounts", 1, 0, 0, "{}", tuple(map(str, range(100))))
    progress = CopyProgress(plan, frozenset(range(40)), 4000, None, is_mixed=False)
    batches = (BatchTiming(6, 0, 6.0), BatchTiming(4, 0, 4.0))
    for last_batches, expected in ((batches, (100, 60)), ((), (None, None))):
        rate = replace(progress, batches=last_batches).chunks_per_s
        copy = CopyStatus(1, 0, chunks=100, copied_chunks=40, copied_rows=4000, chunks_per_s=rate)
        assert expected == (copy.rows_per_s, copy.left_s)
