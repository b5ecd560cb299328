"""Spark's commits are on a branch of their own, to which `main` moves as a whole and from its base."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import MAIN, head, head_id
from cdc_platform.lake.commits.staging import drop_staging, staging_branch

ROW: Final = pa.table({"id": pa.array([1], pa.int64())})
OVERTAKEN: Final = "overtaken"
FOREIGN: Final = ("staging-eu", "staging-2024-01")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with one row, whose commits are not retried."""
    table = make_table(tmp_path)
    table.append(ROW)
    return table


def make_table(folder: Path) -> Table:
    """Return a new table without a snapshot."""
    lake = Lake(LakeSettings(str(folder)), "p")
    table: Table = lake.catalog.create_table("p.t", ROW.schema, properties={"commit.retry.num-retries": "0"})
    return table


def reload(table: Table) -> Table:
    """Return the table as it is now, and leave the given version as it was."""
    loaded: Table = table.catalog.load_table(table.name())
    return loaded


def rows_of(table: Table) -> int:
    """Return the number of rows that readers see."""
    return len(reload(table).scan().to_arrow())


def stage(table: Table, meanwhile: Callable[[Table], object] = lambda _table: None, rows: int = 1) -> None:
    """Stage some commits of a row each, and publish them; something may happen in between."""
    with staging_branch(table, OVERTAKEN) as branch:
        for _ in range(rows):
            reload(table).append(ROW, branch=branch)
        meanwhile(reload(table))


def append(table: Table) -> None:
    """Commit a row without staging, as pyiceberg does."""
    table.append(ROW)


class Death(BaseException):
    """The process ends."""


def die(_table: Table) -> None:
    """End the process."""
    raise Death


def leave_staging(table: Table, commits: int) -> None:
    """Leave a staging branch with some commits, as a process that dies does."""
    with pytest.raises(Death):
        stage(reload(table), die, commits)


def test_readers_see_the_commits_of_an_attempt_at_its_end(table: Table) -> None:
    """Its commits are published together, and no staging branch remains."""
    with staging_branch(reload(table), OVERTAKEN) as branch:
        for _ in range(2):
            reload(table).append(ROW, branch=branch)
        assert rows_of(table) == 1
    assert rows_of(table) == 3
    assert {MAIN} == {*reload(table).metadata.refs}


def test_the_first_of_two_attempts_to_end_is_published(table: Table) -> None:
    """The other one is a conflict; its commits stay in the metadata until they expire with their files."""
    with pytest.raises(CommitConflict, match=OVERTAKEN):
        stage(reload(table), stage)
    assert rows_of(table) == 2
    assert {MAIN} == {*reload(table).metadata.refs}
    assert len(reload(table).metadata.snapshots) == 3


@pytest.mark.parametrize("is_begun", [False, True])
def test_an_attempt_needs_the_version_that_it_was_planned_on(table: Table, *, is_begun: bool) -> None:
    """A commit without staging before the attempt begins, or before it ends, is a conflict."""
    planned = reload(table)
    if not is_begun:
        append(reload(table))
    with pytest.raises(CommitConflict, match=OVERTAKEN):
        stage(planned, append)
    assert {MAIN} == {*reload(table).metadata.refs}
    assert rows_of(table) == 1 + 1


def test_an_attempt_without_a_commit_changes_nothing(table: Table) -> None:
    """Such as a compaction that has nothing to rewrite."""
    before = head_id(table)
    with staging_branch(reload(table), OVERTAKEN):
        pass
    assert before == head_id(reload(table))
    assert {MAIN} == {*reload(table).metadata.refs}


def test_of_two_attempts_on_an_empty_table_one_is_published(tmp_path: Path) -> None:
    """A branch begins at a snapshot, so the first attempt commits one without rows."""
    table = make_table(tmp_path)
    first, second = reload(table), reload(table)
    stage(first)
    with pytest.raises(CommitConflict, match=OVERTAKEN):
        stage(second)
    assert rows_of(table) == 1


def test_an_attempt_that_fails_leaves_no_branch(table: Table) -> None:
    """A query that fails in each cycle would otherwise leave one each time."""
    with pytest.raises(ZeroDivisionError):
        stage(reload(table), lambda _table: 1 // 0)
    assert {MAIN} == {*reload(table).metadata.refs}


@pytest.mark.parametrize("overtake", [stage, drop_staging])
def test_an_error_of_an_overtaken_attempt_is_a_conflict(
    table: Table, overtake: Callable[[Table], object]
) -> None:
    """Such as Iceberg's refusal to delete by a filter what the other run has compacted meanwhile."""

    def fail(current: Table) -> None:
        overtake(current)
        raise ZeroDivisionError

    with pytest.raises(CommitConflict, match=OVERTAKEN) as conflict:
        stage(reload(table), fail)
    assert isinstance(conflict.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("commits", [0, 1, 2])
@pytest.mark.parametrize("end", [drop_staging, stage])
def test_what_a_dead_process_has_staged_goes_with_the_next_commit(
    table: Table, commits: int, end: Callable[[Table], object]
) -> None:
    """Or with the next maintenance, if that comes first."""
    leave_staging(table, commits)
    end(reload(table))
    assert {MAIN} == {*reload(table).metadata.refs}
    assert rows_of(table) == 1 + (end is stage)


def test_a_staged_commit_whose_files_are_gone_leaves_the_metadata(table: Table) -> None:
    """Maintenance reads the files of every snapshot."""
    leave_staging(table, 1)
    snapshot = reload(table).metadata.snapshots[-1]
    table.io.delete(snapshot.manifest_list)
    drop_staging(reload(table))
    assert [head(reload(table))] == reload(table).metadata.snapshots


def test_branches_of_other_programs_stay(table: Table) -> None:
    """A name that begins in the same way is not enough."""
    for name in FOREIGN:
        reload(table).manage_snapshots().create_branch(head_id(table) or 0, name).commit()
    stage(reload(table))
    drop_staging(reload(table))
    assert {MAIN, *FOREIGN} == {*reload(table).metadata.refs}


def test_a_commit_that_leaves_main_alone_is_no_conflict(table: Table) -> None:
    """A tag that another process creates does not void the work of an attempt."""
    stage(
        reload(table),
        lambda table: table.manage_snapshots().create_tag(head_id(table) or 0, "pinned").commit(),
    )
    assert rows_of(table) == 2
