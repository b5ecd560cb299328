"""Quarantine and the read progress: what is open, asked for, and done; without Spark."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.quarantine import (
    ReplayMark,
    count_quarantined_records,
    load_quarantine,
    load_replays,
    mark_replayed,
    may_lack_changes,
)
from cdc_platform.lake.state.read_progress import (
    load_read_progress,
    load_replay_progress,
    replay_path,
    waiting_texts,
)
from cdc_platform.model.base.schemas import QUARANTINE_ROWS, READ_PROGRESS_ROWS
from cdc_platform.model.base.stored_names import CYCLE, QUARANTINE, READ_PROGRESS
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.stream.files import READ_AGAIN
from cdc_platform.model.stream.quarantined_records import ReplaySource
from cdc_platform.model.stream.unread import FailedRead, failed_reads, unread_path
from cdc_platform_tests.lake.quarantine_entries import note_read, quarantine, quarantine_entry


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake of events: three files have been read, and one event each of two of them is in quarantine."""
    made = Lake(LakeSettings(str(tmp_path)), "shop", delivers_events=True)
    quarantine(made, 1, quarantine_entry("a", "f"), quarantine_entry("b", "g"))
    note_read(made, 1, "f", "g", "h")
    return made


def test_a_file_counts_as_unread_until_it_was_read_again(lake: Lake) -> None:
    """Asking is one commit; anyone who plans sees it, until a later cycle has read the file."""
    assert load_read_progress(lake) == {"f": "1", "g": "1", "h": "1"}
    mark_replayed(lake, {(1, "a/a"): ReplayMark(5, 1, ReplaySource.FILE)})
    assert load_read_progress(lake) == {"f": READ_AGAIN, "g": "1", "h": "1"}
    assert (count_quarantined_records(lake), count_quarantined_records(lake, "users")) == (1, 1)
    assert may_lack_changes(lake, "users")
    assert [record.name for record in load_quarantine(lake)] == ["b"]
    quarantine(lake, 2)
    note_read(lake, 2, "f")
    assert load_read_progress(lake) == {"f": "1", "g": "1", "h": "1"}
    assert load_replays(lake).origins == {"f"}


def test_texts_wait_until_a_cycle_notes_them(lake: Lake) -> None:
    """The oldest replay comes first; the read progress says which ones have been taken."""
    assert waiting_texts(lake) is None
    mark_replayed(
        lake,
        {
            (1, "b/b"): ReplayMark(7, 1, ReplaySource.TEXT),
            (1, "a/a"): ReplayMark(6, 1, ReplaySource.TEXT),
        },
    )
    for micros, name in ((6, "a"), (7, "b")):
        actual = waiting_texts(lake)
        assert actual is not None
        assert (micros, [name]) == (actual[0], [record.name for record in actual[1]])
        quarantine(lake, micros)
        note_read(lake, micros, replay_path(micros))
    assert waiting_texts(lake) is None
    assert count_quarantined_records(lake) == 0


def test_a_replay_shows_how_far_it_is(lake: Lake) -> None:
    """The texts of one request count together, whichever cycle takes them; an earlier request does not."""
    assert load_replay_progress(lake) is None
    quarantine(lake, 1, quarantine_entry("c", "h"))
    begun = clock_micros() - 10 * 1_000_000
    moments = {"a": begun - 60 * 1_000_000, "b": begun, "c": begun + 1}
    texts = {(1, f"{name}/{name}"): ReplayMark(at, 1, ReplaySource.TEXT) for name, at in moments.items()}
    mark_replayed(lake, texts)
    for cycle, name in ((2, "a"), (3, "b")):
        quarantine(lake, cycle)
        note_read(lake, cycle, replay_path(moments[name]))
    replay = load_replay_progress(lake)
    assert replay is not None
    assert (replay.done, replay.total, replay.files) == (1, 2, 0)
    assert replay.records_per_s == pytest.approx(0.1, rel=0.5)
    assert replay.left_s == pytest.approx(10, rel=0.5)
    assert re.fullmatch(r"1 of 2 records \(50 %\), 0\.\d+ records/s, \d+ s left", replay.describe())
    quarantine(lake, 4)
    note_read(lake, 4, replay_path(moments["c"]))
    assert load_replay_progress(lake) is None
    mark_replayed(lake, {(1, "a/a"): ReplayMark(5, 4, ReplaySource.FILE)})
    replay = load_replay_progress(lake)
    assert replay is not None
    assert replay.describe() == "1 file to read again"


def test_a_replay_ends_the_pause_of_its_file(lake: Lake) -> None:
    """A failure before the request for a replay does not count; one after it does."""

    def note_failure(cycle: int) -> None:
        rows = [
            {"cycle": cycle, "path": unread_path("f"), "version": FailedRead("2", cycle, "Broken").to_text()}
        ]
        table = pa.Table.from_pylist(rows, READ_PROGRESS_ROWS)
        lake.system_table(READ_PROGRESS).append(table, snapshot_properties={CYCLE: str(cycle)})

    quarantine(lake, 2)
    note_failure(2)
    assert list(failed_reads(load_read_progress(lake))) == ["f"]
    mark_replayed(lake, {(1, "a/a"): ReplayMark(5, 2, ReplaySource.FILE)})
    assert load_read_progress(lake) == {"f": READ_AGAIN, "g": "1", "h": "1"}
    quarantine(lake, 3)
    note_failure(3)
    read_progress = load_read_progress(lake)
    assert (read_progress["f"], failed_reads(read_progress)["f"].tries) == (READ_AGAIN, 2)


def test_what_a_running_cycle_has_quarantined_is_left_alone(lake: Lake) -> None:
    """An interrupted replay writes these rows again, so they may not share a file with others."""
    quarantine(lake, 2, quarantine_entry("a", "f", cycle=2))
    rows = pa.Table.from_pylist([quarantine_entry("a", "f", cycle=3)], QUARANTINE_ROWS)
    lake.system_table(QUARANTINE).append(rows)
    mark_replayed(lake, {(cycle, "a/a"): ReplayMark(6, 2, ReplaySource.FILE) for cycle in (1, 2, 3)})
    assert [(record.cycle, record.name) for record in load_quarantine(lake)] == [(1, "b"), (3, "a")]
    assert [record.cycle for record in load_quarantine(lake, with_replayed=True)] == [1, 1, 2, 3]
    # What a cycle that is run again does: the table would refuse to take a part of a file away.
    lake.system_table(QUARANTINE).delete("cycle > 2")
    assert [record.cycle for record in load_quarantine(lake, with_replayed=True)] == [1, 1, 2]
