"""A stuck partition is named with its age, holds the watermark, and is asked again where it stands."""

from cdc_platform.model.lineage import (
    ChildAnnouncement,
    Lineage,
    advance,
    begin,
    plan_slices,
    watermark_micros,
)
from cdc_platform.model.slices import Slice, SliceOutcome, SliceReport
from cdc_platform.model.stuck import StuckPartition, find_stuck

SECOND = 1_000_000
START = 1_000 * SECOND
SILENT = "PartitionStuck: it has sent neither records nor heartbeats"


def two_partitions() -> Lineage:
    """Return the lineage after the root query announced `a` and `b`."""
    children = [ChildAnnouncement(1, START, token, ()) for token in "ab"]
    root = SliceReport("", START - 1, START - 1, SliceOutcome.FINISHED)
    return advance(begin(START), 1, [root], children)


def tick_of(seconds: int, error: str) -> list[SliceReport]:
    """Return a tick of so many seconds in which `b` was read whole and `a` for one second."""
    end = START + seconds * SECOND
    return [
        SliceReport("b", START - 1, end, SliceOutcome.COMPLETE),
        SliceReport("a", START - 1, START + SECOND, SliceOutcome.INTERRUPTED, error),
    ]


def test_a_silent_partition_is_named_with_its_age() -> None:
    """The age is what the source's time has gone on since the last that came."""
    lineage = two_partitions()
    (found,) = find_stuck(lineage, tick_of(31, SILENT), START + 31 * SECOND)
    assert StuckPartition(lineage.partitions["a"].key, START + SECOND, 30.0) == found
    assert f"`{lineage.partitions['a'].key}` is stuck: nothing has come of it for 30.0 s" in found.describe()


def test_a_partition_that_fails_is_named_with_its_error() -> None:
    """It holds the watermark as a silent one does, but the source has said why."""
    (found,) = find_stuck(two_partitions(), tick_of(31, "QuotaExceeded: too many"), START + 31 * SECOND)
    assert found.error == "QuotaExceeded: too many"
    assert "could not be read on, 30.0 s behind the others" in found.describe()
    assert found.describe().endswith("QuotaExceeded: too many")


def test_a_stuck_partition_holds_the_watermark_and_is_asked_again() -> None:
    """However long the others are read on, nothing of it is skipped: a fresh slice begins at its position."""
    lineage = two_partitions()
    for tick in range(2, 6):
        end = START + 10 * tick * SECOND
        slices = {planned.token: planned for planned in plan_slices(lineage, end + 1)}
        assert tick == 2 or Slice("a", START + SECOND, end) == slices["a"]
        position = START + SECOND
        reports = [
            SliceReport("b", slices["b"].start_exclusive_micros, end, SliceOutcome.COMPLETE),
            SliceReport("a", slices["a"].start_exclusive_micros, position, SliceOutcome.INTERRUPTED, SILENT),
        ]
        (stuck,) = find_stuck(lineage, reports, end)
        lineage = advance(lineage, tick, reports, [])
        assert position == watermark_micros(lineage) == stuck.position_micros
    answered = SliceReport("a", position, end, SliceOutcome.COMPLETE)
    assert end == watermark_micros(advance(lineage, 6, [answered], []))
    assert find_stuck(lineage, [answered], end) == ()
