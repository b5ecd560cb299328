"""Control rows of the raw table, and the lineage as it is stored."""

from pathlib import Path

import pytest

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.control import load_lineage, read_control, save_lineage
from cdc_platform.model.base.stored_names import LINEAGE
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.stream.lineage import ChildAnnouncement, Lineage, PartitionState, advance, begin
from cdc_platform.model.stream.read_windows import ReadWindow, WindowOutcome, WindowReport
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.pipeline.bank import opening
from cdc_platform_tests.support.pipelines import START, append_raw, make_pipeline, window_row


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline that has read nothing."""
    return make_pipeline(LakeSettings(str(tmp_path)))


def children_row(
    token: str, *children: tuple[str, list[str]], kind: RecordKind = RecordKind.CHILD_PARTITIONS
) -> dict[str, object]:
    """Return a record that announces partitions which start a second after the stream."""
    return {
        "kind": kind.value,
        "partition_token": token,
        "record_timestamp": to_datetime(START + 1_000_000),
        "child_partitions": [
            {"token": child, "parent_partition_tokens": parents} for child, parents in children
        ],
    }


def grown() -> Lineage:
    """Return a lineage with a partition in every state but the one that follows from another."""
    announced = [ChildAnnouncement(1, START, token, ("",)) for token in ("a", "b")]
    root = WindowReport("", START - 1, START - 1, WindowOutcome.FINISHED)
    first = advance(begin(START), 1, [root], announced)
    finished = WindowReport("a", START - 1, START + 9, WindowOutcome.FINISHED)
    merged = [ChildAnnouncement(2, START + 10, "c", ("a", "b"))]
    second = advance(first, 2, [finished], merged)
    announced = [ChildAnnouncement(3, START + 4, "d", ("b",), continues_parents=False)]
    read = [WindowReport("b", START - 1, START + 5, WindowOutcome.COMPLETE)]
    ended = WindowReport("d", START + 3, START + 5, WindowOutcome.ENDED)
    lineage = advance(second, 3, [*read, ended], announced)
    assert {*PartitionState} - {PartitionState.SCHEDULED} == {
        partition.state for partition in lineage.partitions.values()
    }
    return lineage


def test_control_rows_are_those_of_one_cycle(pipeline: Pipeline) -> None:
    """Reports, announcements and counts are read without the data records, and without other cycles."""
    planned = ReadWindow("", START - 1, START + 5)
    append_raw(pipeline, 1, [window_row(ReadWindow("", 0, 1), records=7)], START)
    rows = [
        opening(1, 100, START),
        children_row("", ("a", []), ("b", [""])),
        children_row("a", ("c", ["a", "b"])),
        children_row("b", ("d", []), kind=RecordKind.PARTITION_START),
        children_row("b", ("a", ["b"]), kind=RecordKind.PARTITION_EVENT),
        window_row(planned, WindowOutcome.FINISHED, records=1),
    ]
    append_raw(pipeline, 2, rows, START)
    control = read_control(pipeline.lake, 2)
    assert control.windows == (WindowReport("", START - 1, START + 5, WindowOutcome.FINISHED),)
    start = START + 1_000_000
    # The first partitions name no parent, or the empty token: both mean the root.
    assert set(control.children) == {
        ChildAnnouncement(2, start, "a", ("",)),
        ChildAnnouncement(2, start, "b", ("",)),
        ChildAnnouncement(2, start, "c", ("a", "b")),
        ChildAnnouncement(2, start, "d", ("b",), continues_parents=False),
    }
    assert control.records[RecordKind.DATA_CHANGE] == 1


def test_a_lineage_survives_the_lake(pipeline: Pipeline) -> None:
    """Every state and cycle is read back as it was stored."""
    assert load_lineage(pipeline.lake) is None
    save_lineage(pipeline.lake, grown())
    assert load_lineage(pipeline.lake) == grown()


def test_an_older_lineage_replaces_nothing(pipeline: Pipeline) -> None:
    """Anyone who derives it last does not undo what a faster run has stored."""
    save_lineage(pipeline.lake, grown())
    before = pipeline.lake.system_table(LINEAGE).metadata_location
    save_lineage(pipeline.lake, begin(START))
    save_lineage(pipeline.lake, grown())
    assert before == pipeline.lake.system_table(LINEAGE).metadata_location
    assert load_lineage(pipeline.lake) == grown()


def test_a_lineage_that_meets_another_commit_tries_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit between reading and writing leads to a second look, and the newer lineage stays."""
    save_lineage(pipeline.lake, begin(START))
    stale = [pipeline.lake.system_table(LINEAGE)]
    first = advance(begin(START), 1, [WindowReport("", START - 1, START, WindowOutcome.COMPLETE)], [])
    save_lineage(pipeline.lake, first)
    original = Lake.system_table
    monkeypatch.setattr(
        Lake, "system_table", lambda lake, name: stale.pop() if stale else original(lake, name)
    )
    save_lineage(pipeline.lake, grown())
    assert load_lineage(pipeline.lake) == grown()
