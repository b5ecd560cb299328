"""A read continues with the children of partitions that end in it, each once and after all its parents."""

from dataclasses import replace

import pytest

from cdc_platform.model.stream.generations import MAX_DESCENDANTS, Generations, PartitionEnd, finished_parents
from cdc_platform.model.stream.lineage import ChildAnnouncement, advance, begin, watermark_micros
from cdc_platform.model.stream.read_windows import ReadWindow, WindowOutcome, WindowReport
from cdc_platform.pipeline.checks.lineage_checks import find_violations

END = 9_000


def announced(token: str, start_micros: int, *parents: str) -> ChildAnnouncement:
    """Return the announcement of a child."""
    return ChildAnnouncement(1, start_micros, token, parents)


def end_of(token: str, *children: ChildAnnouncement) -> PartitionEnd:
    """Return the end of a partition right before its children."""
    return PartitionEnd(token, children[0].start_micros - 1, children)


def test_children_of_a_split_are_read_at_once() -> None:
    """Their windows begin where the parent ended and end where the read does."""
    windows = Generations(END, ()).after(end_of("a", announced("b", 2_000, "a"), announced("c", 2_000, "a")))
    assert [ReadWindow("b", 1_999, END), ReadWindow("c", 1_999, END)] == windows


def test_a_merged_child_is_read_once_after_its_last_parent() -> None:
    """Each parent announces it; one that ended in an earlier read counts."""
    child = announced("c", 2_000, "a", "b")
    generations = Generations(END, ())
    assert [generations.after(end_of(parent, child)) for parent in "ab"] == [
        [],
        [ReadWindow("c", 1_999, END)],
    ]
    assert generations.after(end_of("b", child)) == []
    assert Generations(END, ("a",)).after(end_of("b", child)) == [ReadWindow("c", 1_999, END)]


def test_a_child_does_not_continue_a_parent_that_was_read_beyond_its_start() -> None:
    """The lineage does not let it start before a read has found the end of that parent, too."""
    child = announced("c", 2_000, "a", "b")
    generations = Generations(END, ())
    assert generations.after(PartitionEnd("b", END, ())) == []
    assert generations.after(end_of("a", child)) == []
    root = [WindowReport("", 999, 999, WindowOutcome.FINISHED)]
    lineage = advance(begin(1_000), 1, root, [announced("a", 1_000), announced("b", 1_000)])
    reports = [
        WindowReport("a", 999, 1_999, WindowOutcome.FINISHED),
        WindowReport("b", 999, END, WindowOutcome.COMPLETE),
    ]
    assert watermark_micros(advance(lineage, 2, reports, [replace(child, cycle=2)])) == 1_999


@pytest.mark.parametrize("start_micros", [END + 1, 2_500])
def test_a_child_that_does_not_go_on_in_the_read_is_left(start_micros: int) -> None:
    """It begins after the end of the read, or not where its parent ended."""
    windows = Generations(END, ()).after(
        PartitionEnd("a", min(start_micros, 2_400) - 1, (announced("b", start_micros, "a"),))
    )
    assert windows == []


def test_a_read_follows_a_bounded_number_of_children() -> None:
    """Partitions beyond the limit are left to the next read, whose lineage knows them."""
    children = [announced(f"b{number}", 2_000, "a") for number in range(MAX_DESCENDANTS + 1)]
    generations = Generations(END, ())
    assert len(generations.after(end_of("a", *children))) == MAX_DESCENDANTS
    assert generations.after(end_of("b1", announced("c", 3_000, "b1"))) == []


def test_generations_of_one_cycle_make_the_lineage_that_several_cycles_make() -> None:
    """For any order of the reports: a split, and the merge of its halves with an earlier partition."""
    root = [WindowReport("", 999, 999, WindowOutcome.FINISHED)]
    before = advance(begin(1_000), 1, root, [announced("a", 1_000), announced("z", 1_000)])
    rounds = [
        ([report("a", 999, 1_999)], [announced("b", 2_000, "a"), announced("c", 2_000, "a")]),
        ([report("b", 1_999, 2_999), report("z", 999, 2_999)], [announced("d", 3_000, "b", "z")]),
        ([report("d", 2_999, END, is_over=False), report("c", 1_999, END, is_over=False)], []),
    ]
    slow = before
    for number, (reports, children) in enumerate(rounds, start=2):
        announcements = [
            ChildAnnouncement(number, child.start_micros, child.token, child.parent_tokens)
            for child in children
        ]
        slow = advance(slow, number, reports, announcements)
    reports = [report for announcements, _ in rounds for report in announcements]
    children = [
        ChildAnnouncement(2, *rest)
        for rest in ((2_000, "b", ("a",)), (2_000, "c", ("a",)), (3_000, "d", ("b", "z")))
    ]
    quick = advance(before, 2, reports[::-1], children)
    assert find_violations(quick) == []
    assert watermark_micros(slow) == watermark_micros(quick) == END
    assert {token: (part.state, part.position_micros) for token, part in slow.partitions.items()} == {
        token: (part.state, part.position_micros) for token, part in quick.partitions.items()
    }


def test_a_partition_that_starts_during_another_is_read_with_it() -> None:
    """The one that announces it has been read beyond its start, and continues."""
    generations = Generations(END, ())
    start = replace(announced("b", 2_000, "a"), continues_parents=False)
    assert generations.after(PartitionEnd("a", END, (start,))) == [ReadWindow("b", 1_999, END)]


def test_a_partition_that_the_read_begins_with_is_not_followed() -> None:
    """Announcing it is a repetition."""
    generations = Generations(END, ())
    generations.begin(["a", "b"])
    assert generations.after(PartitionEnd("a", END, (announced("b", 2_000, "a"),))) == []


def test_parents_that_ended_are_listed_while_a_child_waits_for_another() -> None:
    """A read in which the other parent ends can continue with the child."""
    root = [WindowReport("", 999, 999, WindowOutcome.FINISHED)]
    lineage = advance(begin(1_000), 1, root, [announced("a", 1_000), announced("b", 1_000)])
    assert finished_parents(lineage) == ()
    lineage = advance(lineage, 2, [report("a", 999, 1_999)], [ChildAnnouncement(2, 2_000, "c", ("a", "b"))])
    assert finished_parents(lineage) == ("a",)


def report(token: str, after: int, until: int, *, is_over: bool = True) -> WindowReport:
    """Return the report of a window in which the partition ended, or did not."""
    return WindowReport(token, after, until, WindowOutcome.FINISHED if is_over else WindowOutcome.COMPLETE)
