"""An attempt commits to a branch of its own, which becomes the target only as a whole and from its base."""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import BRANCH, MAIN, head_id
from cdc_platform.lake.commits.staging import (
    Staging,
    drop_staging,
    open_staging,
    publish_staging,
    staged,
    staged_heads,
)

ROW: Final = pa.table({"id": pa.array([1], pa.int64())})
OVERTAKEN: Final = "overtaken"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with one row, whose commits are not retried."""
    properties = {"commit.retry.num-retries": "0"}
    table = Lake(LakeSettings(str(tmp_path)), "p").catalog.create_table(
        "p.t", ROW.schema, properties=properties
    )
    table.append(ROW)
    return table


def reload(table: Table) -> Table:
    """Return the table as it is now, and leave the given version as it was."""
    loaded: Table = table.catalog.load_table(table.name())
    return loaded


def rows_of(table: Table) -> int:
    """Return the number of rows that readers see."""
    return len(reload(table).scan().to_arrow())


def staging_of(table: Table, target: str = MAIN) -> Staging:
    """Return an attempt to move a branch from where it is now."""
    start = head_id(table, target)
    return Staging(table, target, start, head_id(table) or 0, OVERTAKEN)


def test_readers_see_the_commits_of_an_attempt_at_its_end(table: Table) -> None:
    """Its commits are published together, and no staging branch remains."""
    with staged(reload(table), MAIN, OVERTAKEN) as branch:
        for _ in range(2):
            reload(table).append(ROW, branch=branch)
        assert rows_of(table) == 1
    assert rows_of(table) == 3
    assert {MAIN} == {*reload(table).metadata.refs}


def test_an_attempt_that_another_run_has_overtaken_publishes_nothing(table: Table) -> None:
    """The first attempt to end moves the target, and removes what the others have staged."""
    first, second = staging_of(reload(table)), staging_of(reload(table))
    for staging in (first, second):
        open_staging(staging)
        reload(table).append(ROW, branch=staging.branch)
    publish_staging(second)
    with pytest.raises(CommitConflict, match=OVERTAKEN):
        publish_staging(first)
    assert rows_of(table) == 2
    assert {MAIN} == {*reload(table).metadata.refs}
    assert len(reload(table).metadata.snapshots) == 2


def test_an_attempt_needs_the_version_that_it_was_planned_on(table: Table) -> None:
    """A commit without staging before the attempt begins, or before it ends, is a conflict."""
    planned, late = reload(table), staging_of(reload(table))
    open_staging(late)
    reload(table).append(ROW, branch=late.branch)
    reload(table).append(ROW)
    for step, attempt in ((open_staging, staging_of(planned)), (publish_staging, late)):
        with pytest.raises(CommitConflict, match=OVERTAKEN):
            step(attempt)
    assert rows_of(table) == 2


def test_an_attempt_without_a_commit_changes_nothing(table: Table) -> None:
    """A target that does not move yet is published where it was."""
    before = head_id(table)
    with staged(reload(table), MAIN, OVERTAKEN):
        pass
    assert before == head_id(reload(table))
    assert {MAIN} == {*reload(table).metadata.refs}


@pytest.mark.parametrize("commits", [0, 1, 2])
def test_the_leftovers_of_a_dead_attempt_go_with_the_next_commit(table: Table, commits: int) -> None:
    """A process that ended at any moment of an attempt leaves nothing after the next one of the target."""
    dead, other = staging_of(reload(table)), staging_of(reload(table), BRANCH)
    for staging in (dead, other):
        open_staging(staging)
    for _ in range(commits):
        reload(table).append(ROW, branch=dead.branch)
    assert [dead.branch] * bool(commits) == [name for name, _ in staged_heads(reload(table))]
    table = reload(table)
    table.append(ROW)
    drop_staging(table, MAIN)
    assert {MAIN, other.branch} == {*reload(table).metadata.refs}
    assert len(reload(table).metadata.snapshots) == 2
    assert rows_of(table) == 2


def test_a_published_attempt_keeps_what_it_was_built_on(table: Table) -> None:
    """An attempt may begin at a commit that the same run has staged, such as a version without rows."""
    first = staging_of(reload(table), BRANCH)
    open_staging(first)
    reload(table).append(ROW, branch=first.branch)
    base = head_id(reload(table), first.branch)
    second = Staging(reload(table), BRANCH, None, base or 0, OVERTAKEN)
    open_staging(second)
    reload(table).append(ROW, branch=second.branch)
    publish_staging(second)
    current = reload(table)
    assert {MAIN, BRANCH} == {*current.metadata.refs}
    assert current.scan(snapshot_id=head_id(current, BRANCH)).to_arrow().num_rows == 3
    assert len(current.metadata.snapshots) == 3
