"""Cuts: numbered, listed, found, and each number taken once."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table import FileScanTask

from cdc_platform.errors import CommitConflict, CutNotFound
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.manifests.stored_table import StoredScan
from cdc_platform.lake.state import cuts
from cdc_platform.lake.state.cuts import (
    NUMBER,
    Cut,
    append_cut,
    cut_positions,
    cuts_since_moment,
    find_cut,
    find_cuts,
    list_cuts,
    newest_cut,
    publications_since,
)
from cdc_platform.model.base.schemas import CUTS
from cdc_platform.model.base.stored_names import CUT
from cdc_platform.model.base.timestamps import to_datetime

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


PUBLISHED_MICROS: Final = (10, 100, 50, 60, 120)
"""Moments at which cuts were published; after the second one the clock was set back."""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with a cut of each moment, the newer half in a separate file, as compaction leaves them."""
    lake = Lake(LakeSettings(str(tmp_path_factory.mktemp("published"))), "cuts")
    numbered = list(enumerate(PUBLISHED_MICROS, start=1))
    append_together(lake, numbered[:2])
    append_together(lake, numbered[2:])
    return lake


def append_together(lake: Lake, published: Iterable[tuple[int, int]]) -> None:
    """Append cuts with their publications in one file, the newest one first."""
    rows = [
        {
            "cut": number,
            "position": to_datetime(number * 1000),
            "cycle": number,
            "tables": [("accounts", number)],
            "published_at": to_datetime(micros),
        }
        for number, micros in sorted(published, reverse=True)
    ]
    table = lake.system_table(CUT)
    table.append(pa.Table.from_pylist(rows, CUTS), snapshot_properties={NUMBER: str(rows[0]["cut"])})


@contextmanager
def read_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, set[str]]]]:
    """Yield, for each scan of the table meanwhile, the number of its files and the columns that it reads."""
    parts: list[tuple[int, set[str]]] = []
    plan = StoredScan.plan_files

    def note(scan: StoredScan) -> Iterable[FileScanTask]:
        tasks = list(plan(scan))
        parts.append((len(tasks), {*scan.projection().column_names}))
        return tasks

    with monkeypatch.context() as patch:
        patch.setattr(StoredScan, "plan_files", note)
        yield parts


def test_positions_are_read_without_tables(published: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions come in the order of the cuts; a thousand tables of each cut stay unread."""
    with read_parts(monkeypatch) as parts:
        assert [number * 1000 for number, _ in enumerate(PUBLISHED_MICROS, 1)] == cut_positions(published)
    assert [(2, {"cut", "position"})] == parts


def test_before_the_first_cut_there_are_none(lake: Lake) -> None:
    """No position, publication or cut is found, for any request."""
    assert (
        cut_positions(lake),
        publications_since(lake, 0),
        find_cuts(lake, [1]),
        cuts_since_moment(lake, 0),
    ) == ([], [], (), ())


@pytest.mark.parametrize(
    ("micros", "first"),
    # The newest one at a moment is the one before the first that was published then, or later.
    [(-5, 1), (10, 1), (11, 1), (100, 1), (101, 4), (120, 4), (121, 5), (10**15, 5)],
)
def test_publications_since_a_moment(
    micros: int, first: int, published: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest cut at the moment and all later ones, also where the clock was set back meanwhile."""
    expected = list(enumerate(PUBLISHED_MICROS, start=1))[first - 1 :]
    with read_parts(monkeypatch) as parts:
        assert expected == publications_since(published, micros)
    assert {"cut", "published_at"} == parts[-1][1]
    assert [number for number, _ in expected] == [cut.cut for cut in cuts_since_moment(published, micros)]


@given(numbers=st.sets(st.integers(-1, 9)))
def test_cuts_are_found_by_number(numbers: set[int], published: Lake) -> None:
    """Those that there are come in their order, and a number that no cut has is not an error."""
    expected = sorted(numbers & {*range(1, len(PUBLISHED_MICROS) + 1)})
    cuts = find_cuts(published, numbers)
    assert expected == [cut.cut for cut in cuts]
    assert [{"accounts": number} for number in expected] == [cut.tables for cut in cuts]


def test_older_files_of_cuts_stay_unread(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any number of requested cuts, only files that may contain one of them are read."""
    for first in (1, 1001, 2001):
        append_together(lake, [(number, number) for number in range(first, first + 1000)])
    with read_parts(monkeypatch) as parts:
        assert len(find_cuts(lake, range(2301, 3001))) == 700
    assert [files for files, _ in parts] == [1]
