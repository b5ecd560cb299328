"""A stuck partition is named with its age, holds the watermark, and is asked again where it stands."""

from cdc_platform.model.stream.lineage import ChildAnnouncement, Lineage, advance, begin, watermark_micros
from cdc_platform.model.stream.read_windows import ReadRequest, ReadWindow, WindowOutcome, WindowReport
from cdc_platform.model.stream.watermark_holders import StuckPartition, find_stuck
from cdc_platform.model.stream.window_plans import plan_windows

SECOND = 1_000_000
START = 1_000 * SECOND
SILENT = "PartitionStuck: it has sent neither records nor heartbeats"


def two_partitions() -> Lineage:
    """Return the lineage after the root query announced `a` and `b`."""
    children = [ChildAnnouncement(1, START, token, ()) for token in "ab"]
    root = WindowReport("", START - 1, START - 1, WindowOutcome.FINISHED)
    return advance(begin(START), 1, [root], children)


def cycle_of(seconds: int, read_s: int, error: str) -> list[WindowReport]:
    """Return a cycle of so many seconds that read `b` whole and `a` for `read_s`, both from the start on."""
    end = START + seconds * SECOND
    return [
        WindowReport("b", START - 1, end, WindowOutcome.COMPLETE),
        WindowReport("a", START - 1, START - 1 + read_s * SECOND, WindowOutcome.INTERRUPTED, error),
    ]


def test_a_silent_partition_is_named_with_how_far_it_is_behind() -> None:
    """A cycle that found nothing at all of it says where it stands, and not for how long it was silent."""
    lineage = two_partitions()
    (partition,) = find_stuck(lineage, cycle_of(31, 0, SILENT), START - 1 + 30 * SECOND)
    assert StuckPartition(lineage.partitions["a"].key, START - 1, 30.0) == partition
    text = partition.describe()
    assert f"`{lineage.partitions['a'].key}` is stuck: two queries from" in text
    assert "30.0 s behind the end of the cycle" in text


def test_a_partition_that_falls_silent_under_way_is_not_stuck() -> None:
    """A pipeline that catches up continues where it fell silent; only one that does not move is stuck."""
    lineage, end = two_partitions(), START + 480 * SECOND
    assert find_stuck(lineage, cycle_of(480, 60, SILENT), end) == ()
    lineage = advance(lineage, 2, cycle_of(480, 60, SILENT), [])
    position = lineage.partitions["a"].position_micros
    again = WindowReport("a", position, position, WindowOutcome.INTERRUPTED, SILENT)
    assert [partition.position_micros for partition in find_stuck(lineage, [again], end)] == [position]


def test_a_partition_that_fails_is_named_with_its_error() -> None:
    """It holds the watermark as a silent one does, but the source has said why."""
    reports = cycle_of(31, 1, "QuotaExceeded: too many")
    (partition,) = find_stuck(two_partitions(), reports, START - 1 + 31 * SECOND)
    assert partition.error == "QuotaExceeded: too many"
    assert "could not be read further, 30.0 s behind the others" in partition.describe()
    assert partition.describe().endswith("QuotaExceeded: too many")


def test_a_stuck_partition_holds_the_watermark_and_is_asked_again() -> None:
    """Nothing of it is skipped while the others are read on: a new window begins at its position."""
    lineage, position = two_partitions(), START - 1
    for cycle in range(2, 6):
        end = START + 10 * cycle * SECOND
        windows = {planned.token: planned for planned in plan_windows(lineage, ReadRequest(end + 1))}
        assert ReadWindow("a", position, end) == windows["a"]
        reports = [
            WindowReport("b", windows["b"].start_exclusive_micros, end, WindowOutcome.COMPLETE),
            WindowReport(
                "a", windows["a"].start_exclusive_micros, position, WindowOutcome.INTERRUPTED, SILENT
            ),
        ]
        (stuck,) = find_stuck(lineage, reports, end)
        lineage = advance(lineage, cycle, reports, [])
        assert position == watermark_micros(lineage) == stuck.position_micros
    answered = WindowReport("a", position, end, WindowOutcome.COMPLETE)
    assert end == watermark_micros(advance(lineage, 6, [answered], []))
    assert find_stuck(lineage, [answered], end) == ()
