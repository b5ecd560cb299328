"""A branch moves to any snapshot of its table, even if others commit at the same time."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import BadRequestError
from pyiceberg.table import CommitTableResponse, Table

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.branches import TRIES, advance_main, move_branch
from cdc_platform.lake.commits.commits import BRANCH, MAIN, head
from cdc_platform.model.base.stored_names import CYCLE

ROW = pa.table({"id": pa.array([1], pa.int64())})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with three snapshots."""
    table = Lake(LakeSettings(str(tmp_path)), "p").catalog.create_table("p.t", ROW.schema)
    for _ in range(3):
        table.append(ROW)
    return table


def end_of(table: Table, branch: str) -> int | None:
    """Return the snapshot at which a branch ends now."""
    snapshot = head(table.refresh(), branch)
    return snapshot.snapshot_id if snapshot is not None else None


@pytest.mark.parametrize("branch", [MAIN, BRANCH])
def test_a_branch_moves_back_and_ahead(table: Table, branch: str) -> None:
    """It ends at the given snapshot, even if the move creates it; other branches stay where they were."""
    first, *_, last = (snapshot.snapshot_id for snapshot in table.metadata.snapshots)
    for snapshot_id in (first, last, first):
        move_branch(table.refresh(), branch, snapshot_id)
        assert snapshot_id == end_of(table, branch)
        assert (snapshot_id if branch == MAIN else last) == end_of(table, MAIN)


@pytest.mark.parametrize("branch", [MAIN, BRANCH])
def test_retention_stays(table: Table, branch: str) -> None:
    """The user's retention of the branch's snapshots stays."""
    first, *_, last = (snapshot.snapshot_id for snapshot in table.metadata.snapshots)
    kept = {"max_snapshot_age_ms": 9_000_000, "min_snapshots_to_keep": 7}
    table.manage_snapshots().create_branch(last, branch, **kept).commit()
    move_branch(table.refresh(), branch, first)
    reference = table.refresh().metadata.refs[branch]
    assert first == reference.snapshot_id
    assert kept == reference.model_dump(include={*kept}, by_alias=False)


def interfere(monkeypatch: pytest.MonkeyPatch, table: Table, times: int) -> None:
    """Let others commit before each of so many commits to a table."""
    catalog, left = table.catalog, [times]
    commit: Callable[..., CommitTableResponse] = catalog.commit_table

    def commit_late(*arguments: object) -> CommitTableResponse:
        if left[0]:
            left[0] -= 1
            with monkeypatch.context() as patch:
                patch.setattr(catalog, "commit_table", commit)
                catalog.load_table(table.name()).append(ROW)
        return commit(*arguments)

    monkeypatch.setattr(catalog, "commit_table", commit_late)


def test_what_others_commit_meanwhile_stays(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The move is retried after their commit; `main` ends at the given snapshot."""
    first = table.metadata.snapshots[0].snapshot_id
    interfere(monkeypatch, table, TRIES - 1)
    move_branch(table, MAIN, first)
    assert first == end_of(table, MAIN)
    assert len(table.metadata.snapshots) == 3 + TRIES - 1


def test_a_table_that_never_rests_is_a_conflict(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some tries the error names table and branch, which is where the others have moved it."""
    interfere(monkeypatch, table, TRIES)
    with pytest.raises(CommitConflict, match=r"p\.t.*`main` has not been moved"):
        move_branch(table, MAIN, table.metadata.snapshots[0].snapshot_id)
    others = table.refresh().metadata.snapshots[-1].snapshot_id
    assert others == end_of(table, MAIN)


@pytest.mark.parametrize("is_service", [False, True])
def test_a_snapshot_that_has_expired_meanwhile_is_a_conflict(
    table: Table, monkeypatch: pytest.MonkeyPatch, is_service: bool
) -> None:
    """Maintenance of another run may take it away between the look and the move."""

    def refuse(*_: object) -> None:
        raise BadRequestError("ValidationException: Cannot set cycle to unknown snapshot")

    seen, first = table.catalog.load_table(table.name()), table.metadata.snapshots[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()
    if is_service:
        monkeypatch.setattr(seen.catalog, "commit_table", refuse)
    with pytest.raises(CommitConflict, match=rf"snapshot {first} of `p\.t` has expired"):
        move_branch(seen, BRANCH, first)


def test_main_is_only_advanced(table: Table) -> None:
    """It goes to what was built on it, and stays where it is, was, or has a later cycle of the log."""
    first, *_, last = (snapshot.snapshot_id for snapshot in table.metadata.snapshots)
    move_branch(table, MAIN, first)
    for snapshot_id in (last, first):
        advance_main(table.refresh(), snapshot_id, lambda: True)
        assert last == end_of(table, MAIN)
    move_branch(table.refresh(), BRANCH, first)
    for cycle, branch in (("7", MAIN), ("6", BRANCH)):
        table.refresh().append(ROW, snapshot_properties={CYCLE: cycle}, branch=branch)
    newest, older = end_of(table, MAIN), end_of(table, BRANCH)
    assert older is not None
    advance_main(table.refresh(), older, lambda: True)
    assert newest == end_of(table, MAIN)
