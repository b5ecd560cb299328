"""Cuts: numbered, listed, found, and each number taken once."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdc_platform.errors import CommitConflict, CutNotFound
from cdc_platform.lake.catalog.lake import CUT, Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state import cuts
from cdc_platform.lake.state.cuts import Cut, append_cut, find_cut, list_cuts, newest_cut

FIRST = Cut(
    cut=1, position_micros=1_000_001, cycle=3, tables={"accounts": 7, "s.t": 2**62}, published_micros=5
)
SECOND = replace(FIRST, cut=2, position_micros=2_000_002, cycle=4)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake without cuts."""
    return Lake(LakeSettings(str(tmp_path)), "cuts")


def test_cuts_are_read_as_they_were_written(lake: Lake) -> None:
    """The newest, one by its number, and all in their order."""
    assert newest_cut(lake) is None
    append_cut(lake, FIRST)
    append_cut(lake, SECOND)
    assert newest_cut(lake) == SECOND
    assert find_cut(lake, 1) == FIRST
    assert list_cuts(lake) == (FIRST, SECOND)


def test_an_unknown_number_is_an_error(lake: Lake) -> None:
    """The error repeats the number."""
    append_cut(lake, FIRST)
    with pytest.raises(CutNotFound, match="No cut has this number: 2"):
        find_cut(lake, 2)


def test_a_number_is_taken_once(lake: Lake) -> None:
    """A second cut of the same number is a conflict, and the first one stays."""
    append_cut(lake, FIRST)
    with pytest.raises(CommitConflict):
        append_cut(lake, replace(FIRST, cycle=9))
    assert list_cuts(lake) == (FIRST,)


def test_two_appends_at_once_cannot_both_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append that read the cuts before another one committed fails instead of being retried on top."""
    stale = lake.system_table(CUT)
    append_cut(lake, FIRST)
    monkeypatch.setattr(Lake, "system_table", lambda _lake, _name: stale)
    with pytest.raises(CommitConflict):
        append_cut(lake, replace(FIRST, cycle=9))
    monkeypatch.undo()
    assert list_cuts(lake) == (FIRST,)
    assert cuts.newest_cut(lake) == FIRST
