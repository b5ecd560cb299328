"""Lineage: partitions start once, end with children, and hold the watermark until they are read."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.errors import PartitionBoundsInvalid
from cdc_platform.model.stream.lineage import (
    ChildAnnouncement,
    Lineage,
    PartitionState,
    advance,
    begin,
    live,
    prune,
    watermark_micros,
)
from cdc_platform.model.stream.read_windows import ReadRequest, ReadWindow, WindowOutcome, WindowReport
from cdc_platform.model.stream.window_plans import plan_arrivals, plan_windows
from cdc_platform.pipeline.checks.lineage_checks import find_violations
from cdc_platform_tests.fake_stream import CycleBatch, ReadSchedule, raw_rows
from cdc_platform_tests.strategies import streams
from cdc_platform_tests.support.history import History

START = 1_000
RANK = {state: rank for rank, state in enumerate(PartitionState)}

Stream = tuple[History, ReadSchedule]


def finished(token: str, start: int, end: int) -> WindowReport:
    """Return the report on a window in which a partition ended."""
    return WindowReport(token, start, end, WindowOutcome.FINISHED)


def complete(token: str, start: int, end: int) -> WindowReport:
    """Return the report on a window that was read to its end."""
    return WindowReport(token, start, end, WindowOutcome.COMPLETE)


def two_partitions() -> Lineage:
    """Return the lineage after the root query announced `a` and `b`."""
    children = [ChildAnnouncement(1, START, token, ()) for token in "ab"]
    return advance(begin(START), 1, [finished("", START - 1, START - 1)], children)


def batches_of(stream: Stream) -> tuple[Lineage, list[CycleBatch]]:
    """Return the first lineage of a stream, and its cycles."""
    return begin(stream[1].tree.start_micros), raw_rows(*stream)


def test_stream_begins_with_the_root_query() -> None:
    """A new lineage plans one window, of the query without a token, that includes the start itself."""
    lineage = begin(START)
    assert plan_windows(lineage, ReadRequest(2_000)) == (ReadWindow("", 999, 1_999),)
    assert watermark_micros(lineage) == 999


def test_arrivals_are_read_while_the_clock_is_behind() -> None:
    """The window begins at the position, though the clock of the machine was set back behind it."""
    lineage = advance(begin(START), 1, [complete("", START - 1, 5_000)], [])
    assert plan_windows(lineage, ReadRequest(2_000)) == ()
    assert plan_arrivals(lineage, ReadRequest(2_000)) == (ReadWindow("", 5_000, 5_001),)
    assert plan_arrivals(lineage, ReadRequest(9_000)) == (ReadWindow("", 5_000, 8_999),)


def test_children_of_the_root_are_scheduled_at_once() -> None:
    """The first partitions name no parents, and may be read as soon as the root query ended."""
    lineage = two_partitions()
    assert {partition.token for partition in live(lineage)} == {"a", "b"}
    assert {lineage.partitions[token].parent_tokens for token in "ab"} == {("",)}


def test_merged_child_waits_for_its_last_parent() -> None:
    """A child announced by one parent starts only when the other has finished, and holds the watermark."""
    child = ChildAnnouncement(2, 2_000, "c", ("a", "b"))
    lineage = advance(two_partitions(), 2, [finished("a", 999, 1_999), complete("b", 999, 1_500)], [child])
    assert lineage.partitions["c"].state is PartitionState.CREATED
    assert plan_windows(lineage, ReadRequest(5_000)) == (ReadWindow("b", 1_500, 4_999),)
    again = ChildAnnouncement(3, 2_000, "c", ("b", "a"))
    lineage = advance(lineage, 3, [finished("b", 1_500, 1_999)], [again])
    assert plan_windows(lineage, ReadRequest(5_000)) == (ReadWindow("c", 1_999, 4_999),)
    assert watermark_micros(lineage) == 1_999
    assert lineage.partitions["c"].created_cycle == 2
    assert lineage.partitions["c"].parent_tokens == ("a", "b")


def test_merged_child_waits_for_a_parent_that_nobody_has_announced_yet() -> None:
    """A parent that is still to be announced by a partition that is behind has not finished."""
    child = ChildAnnouncement(2, 2_000, "c", ("a", "grandchild"))
    lineage = advance(two_partitions(), 2, [finished("a", 999, 1_999), complete("b", 999, 1_500)], [child])
    assert lineage.partitions["c"].state is PartitionState.CREATED
    late = ChildAnnouncement(3, 1_800, "grandchild", ("b",))
    lineage = advance(lineage, 3, [finished("b", 1_500, 1_799)], [late])
    assert lineage.partitions["c"].state is PartitionState.CREATED
    lineage = advance(lineage, 4, [finished("grandchild", 1_799, 1_999)], [replace(child, cycle=4)])
    assert lineage.partitions["c"].state is PartitionState.SCHEDULED
    assert find_violations(lineage) == []


def test_interrupted_window_moves_the_position_to_what_is_complete() -> None:
    """The part of an interrupted window that was certainly read is not planned again."""
    report = WindowReport("a", 999, 1_200, WindowOutcome.INTERRUPTED, "SourceUnreachable: no answer")
    lineage = advance(two_partitions(), 2, [report], [])
    assert ReadWindow("a", 1_200, 2_999) in plan_windows(lineage, ReadRequest(3_000))
    assert lineage.partitions["a"].state is PartitionState.RUNNING


def test_end_of_a_query_does_not_finish_its_partition() -> None:
    """A window that was read to its end without children leaves its partition running."""
    lineage = advance(two_partitions(), 2, [complete("a", 999, 2_999)], [])
    assert lineage.partitions["a"].state is PartitionState.RUNNING
    assert plan_windows(lineage, ReadRequest(4_000, keys={lineage.partitions["a"].key})) == (
        ReadWindow("a", 2_999, 3_999),
    )


@pytest.mark.parametrize(
    ("clock_micros", "max_window_s", "end_limit_micros", "expected"),
    [
        (3_000_000, None, None, 2_999_999),  # just before the source's clock
        (3_000_000, 1.5, None, 1_500_999),  # so long after the position that is furthest behind
        (3_000_000, None, 2_000_000, 2_000_000),  # nothing after the limit
        (3_000_000, 1e-9, None, 1_000),  # always some progress
        (1_000, None, None, None),  # the clock has not moved: nothing to read
    ],
)
def test_windows_have_one_common_end(
    clock_micros: int, max_window_s: float | None, end_limit_micros: int | None, expected: int | None
) -> None:
    """The end of the windows is the lowest of the clock, the longest window, and the limit."""
    windows = plan_windows(
        two_partitions(), ReadRequest(clock_micros, max_window_s, end_limit_micros=end_limit_micros)
    )
    assert {expected} - {None} == {planned.end_inclusive_micros for planned in windows}


@pytest.mark.parametrize(
    "report",
    [
        complete("unknown", 999, 2_000),  # nobody announced it
        complete("c", 1_999, 3_000),  # its second parent has not finished
        complete("b", 1_501, 3_000),  # the microsecond at 1,501 would be lost
    ],
)
def test_window_that_would_lose_records_is_refused(report: WindowReport) -> None:
    """A report that would step over something unread is an error, not progress."""
    child = ChildAnnouncement(2, 2_000, "c", ("a", "b"))
    reports = [finished("a", 999, 1_999), complete("b", 999, 1_500)]
    lineage = advance(two_partitions(), 2, reports, [child])
    with pytest.raises(PartitionBoundsInvalid, match="report this"):
        advance(lineage, 3, [report], [])


def test_finished_partition_without_children_is_a_violation() -> None:
    """A partition that ended with nothing to continue it is reported."""
    lineage = advance(two_partitions(), 2, [finished("a", 999, 1_999)], [])
    key = lineage.partitions["a"].key
    assert find_violations(lineage) == [f"Partition `{key}` is finished and has no children"]
    assert prune(lineage, 10_000) == replace(lineage, partitions=prune(lineage, 10_000).partitions)
    assert "a" in prune(lineage, 10_000).partitions


def test_child_that_overlaps_its_parent_is_a_violation() -> None:
    """A child that starts before its parent ended is reported."""
    child = ChildAnnouncement(2, 1_500, "c", ("a",))
    lineage = advance(two_partitions(), 2, [finished("a", 999, 1_999)], [child])
    assert len(find_violations(lineage)) == 1
    assert "does not start where its parent" in find_violations(lineage)[0]


def test_parent_stays_until_all_its_children_are_read() -> None:
    """A finished partition is pruned only when each of its children has been read."""
    children = [ChildAnnouncement(2, 2_000, token, ("a",)) for token in "cd"]
    lineage = advance(two_partitions(), 2, [finished("a", 999, 1_999), complete("b", 999, 3_000)], children)
    assert set("abcd") == set(prune(lineage, 9_000).partitions)
    lineage = advance(lineage, 3, [complete("c", 1_999, 4_000)], [])
    assert "a" in prune(lineage, 9_000).partitions
    lineage = advance(lineage, 4, [complete("d", 1_999, 4_000)], [])
    assert set("abcd") == set(prune(lineage, 1_999).partitions) - {""}
    assert set("bcd") == set(prune(lineage, 2_000).partitions)


def from_parents(*reports: WindowReport, start: int = 1_500) -> Lineage:
    """Return the lineage after a cycle in which `a` announced `c`, which starts while `a` continues."""
    child = ChildAnnouncement(2, start, "c", ("a",), continues_parents=False)
    return advance(two_partitions(), 2, reports, [child])


def test_a_partition_that_starts_during_another_is_read_at_once() -> None:
    """Its parent need not end: that has been read beyond the start, from which on the partition is read."""
    lineage = from_parents(complete("a", 999, 2_000), complete("b", 999, 2_000))
    assert PartitionState.RUNNING is lineage.partitions["a"].state
    assert plan_windows(lineage, ReadRequest(2_001)) == (ReadWindow("c", 1_499, 2_000),)
    assert watermark_micros(lineage) == 1_499
    assert find_violations(lineage) == []


def test_one_cycle_may_read_what_starts_in_it() -> None:
    """A partition that starts and ends within the windows of one cycle is read in that cycle."""
    ended = WindowReport("c", 1_499, 1_700, WindowOutcome.ENDED)
    lineage = from_parents(ended, complete("a", 999, 2_000), complete("b", 999, 2_000))
    assert PartitionState.ENDED is lineage.partitions["c"].state
    assert watermark_micros(lineage) == 2_000
    assert find_violations(lineage) == []


def test_what_ended_without_children_is_pruned() -> None:
    """Nothing continues it, so it is forgotten; one that announced another stays until that is read."""
    ended = WindowReport("a", 999, 1_600, WindowOutcome.ENDED)
    lineage = from_parents(ended, complete("b", 999, 2_000))
    assert find_violations(lineage) == []
    assert set("abc") == set(prune(lineage, 9_000).partitions)
    lineage = advance(lineage, 3, [complete("c", 1_499, 2_500)], [])
    assert set("bc") == set(prune(lineage, 9_000).partitions)
    assert set("abc") <= set(prune(lineage, 1_600).partitions)


def test_another_announcement_of_a_known_partition_changes_nothing() -> None:
    """Two partitions may announce one, the second when that has been read already."""
    lineage = from_parents(complete("a", 999, 2_000))
    lineage = advance(lineage, 3, [complete("c", 1_499, 1_800)], [])
    again = ChildAnnouncement(4, 1_500, "c", ("b",))
    partition = lineage.partitions["c"]
    assert partition == advance(lineage, 4, [complete("b", 999, 2_000)], [again]).partitions["c"]


def test_a_partition_that_starts_again_after_its_end_is_refused() -> None:
    """Its token would not be read any more, so that what follows would be lost."""
    ended = WindowReport("c", 1_499, 1_700, WindowOutcome.ENDED)
    lineage = from_parents(ended, complete("a", 999, 2_000))
    again = ChildAnnouncement(3, 1_900, "c", ("b",))
    with pytest.raises(PartitionBoundsInvalid, match="announced again with a start after its end"):
        advance(lineage, 3, [complete("b", 999, 2_000)], [again])


def test_a_partition_that_starts_before_its_known_start_is_refused() -> None:
    """It has been read from the later start, so earlier records would be lost."""
    lineage = from_parents(complete("a", 999, 2_000))
    again = ChildAnnouncement(3, 1_400, "c", ("b",))
    with pytest.raises(PartitionBoundsInvalid, match="announced again with an earlier start"):
        advance(lineage, 3, [complete("b", 999, 2_000)], [again])


def test_an_end_without_a_start_is_refused() -> None:
    """A partition that was never announced has not been read, even if a report claims so."""
    ended = WindowReport("nobody", 999, 1_700, WindowOutcome.ENDED)
    with pytest.raises(PartitionBoundsInvalid, match="is unknown"):
        advance(two_partitions(), 2, [ended], [])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Its parent would still have to be read up to its start.
        ({"position_micros": 1_200}, "was started before its parent"),
        ({"position_micros": 1_200, "state": PartitionState.ENDED}, "starts after its parent"),
        # It would have children that continue it, and these begin where it ends.
        ({"state": PartitionState.FINISHED}, "does not start where its parent"),
    ],
)
def test_a_start_that_its_parent_does_not_reach_is_a_violation(
    changes: dict[str, Any], expected: str
) -> None:
    """A record that was read has announced a partition along with its parent."""
    lineage = from_parents(complete("a", 999, 2_000))
    parent = replace(lineage.partitions["a"], **changes)
    (problem,) = find_violations(replace(lineage, partitions={**lineage.partitions, "a": parent}))
    assert expected in problem


def test_a_parent_that_is_read_on_after_its_end_is_a_violation() -> None:
    """A partition whose children continue it has ended: they wait for a read that finds its end."""
    child = ChildAnnouncement(2, 1_500, "c", ("a",))
    lineage = advance(two_partitions(), 2, [complete("a", 999, 2_000), complete("b", 999, 2_000)], [child])
    parent, waiting = lineage.partitions["a"], lineage.partitions["c"]
    assert find_violations(lineage) == [
        f"Partition `{parent.key}` was read beyond the start of its child `{waiting.key}`"
    ]
    assert PartitionState.CREATED is waiting.state
    assert watermark_micros(lineage) == 1_499


@given(streams(max_transactions=3), st.data())
def test_any_stream_has_a_sound_lineage(stream: Stream, data: st.DataObject) -> None:
    """After any splits, merges, interruptions and skips all guarantees of a lineage hold.

    One stream is made for all of it: making it takes far longer than any of the assertions.
    """
    first, batches = batches_of(stream)
    assert [find_violations(batch.lineage) for batch in batches] == [[]] * len(batches)
    assert_another_run_changes_nothing(batches)
    assert_order_of_reports_does_not_matter(first, batches, data)
    assert_nothing_goes_back(first, batches)
    assert_children_start_after_their_parents(stream, batches)
    assert_unread_partitions_hold_the_watermark(batches)
    assert_pruning_changes_nothing(first, batches, keep_micros=data.draw(st.integers(0, 2_000_000)))


def assert_another_run_changes_nothing(batches: Sequence[CycleBatch]) -> None:
    """A lineage that contains a cycle is the same after applying that cycle again."""
    for batch in batches:
        for cycle in range(1, batch.cycle + 1):
            assert batch.lineage == advance(batch.lineage, cycle, batch.reports, batch.children)


def assert_order_of_reports_does_not_matter(
    lineage: Lineage, batches: Sequence[CycleBatch], data: st.DataObject
) -> None:
    """ReadWindows and announcements of a cycle lead to the same lineage in any order, and repeated."""
    for batch in batches:
        reports = data.draw(st.permutations(batch.reports))
        children = data.draw(st.permutations(batch.children * 2))
        assert batch.lineage == advance(lineage, batch.cycle, reports, children)
        lineage = batch.lineage


def assert_nothing_goes_back(before: Lineage, batches: Sequence[CycleBatch]) -> None:
    """Watermark, positions and states only move forward from cycle to cycle."""
    watermark = watermark_micros(before) or 0
    for batch in batches:
        assert watermark <= batch.watermark_micros
        for token, partition in before.partitions.items():
            after = batch.lineage.partitions[token]
            assert partition.position_micros <= after.position_micros
            assert RANK[partition.state] <= RANK[after.state]
        before, watermark = batch.lineage, batch.watermark_micros


def assert_children_start_after_their_parents(stream: Stream, batches: Sequence[CycleBatch]) -> None:
    """Each partition is first read in one cycle, later than the one in which its last parent finished."""
    last = batches[-1].lineage
    for span in stream[1].tree.spans:
        partition = last.partitions[span.token]
        ends = [last.partitions[parent].finished_cycle or 0 for parent in span.parents or ("",)]
        assert max(ends) < (partition.running_cycle or 10**9)


def assert_unread_partitions_hold_the_watermark(batches: Sequence[CycleBatch]) -> None:
    """The watermark lies before the start of every partition that is known but was never read."""
    for batch in batches:
        for partition in batch.lineage.partitions.values():
            if partition.running_cycle is None:
                assert batch.watermark_micros < partition.start_micros


def assert_pruning_changes_nothing(
    pruned: Lineage, batches: Sequence[CycleBatch], *, keep_micros: int
) -> None:
    """A lineage pruned after every cycle has the same watermark, windows and states as a whole one."""
    for batch in batches:
        pruned = advance(pruned, batch.cycle, batch.reports, batch.children)
        pruned = prune(pruned, batch.watermark_micros - keep_micros)
        clock = batch.watermark_micros + 10
        assert watermark_micros(batch.lineage) == watermark_micros(pruned)
        assert plan_windows(batch.lineage, ReadRequest(clock)) == plan_windows(pruned, ReadRequest(clock))
        assert find_violations(pruned) == []
        assert batch.lineage.partitions.items() >= pruned.partitions.items()
