"""Moving a branch of a table to one of its snapshots, which needs no Spark."""

from collections.abc import Callable, Mapping
from typing import Final

from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.commits.commits import MAIN, ancestors_of, head, mark_at, read_mark

TRIES: Final = 4
RETENTION: Final = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep")


def move_branch(table: Table, branch: str, snapshot_id: int, *, tries: int = TRIES) -> None:
    """Move a branch to a snapshot; create the branch if it is missing.

    The retention of its snapshots stays as it was set.

    Args:
        table: the table; concurrent commits of others stay.
        branch: the branch, which may be `main`.
        snapshot_id: a snapshot of the table, of any branch.
        tries: with 1, the branch moves only from where the given version of the table has it.

    Raises:
        CommitConflict: others committed to the table at each attempt, or the snapshot has expired; the
            branch has not moved.
        NoSuchTableError: another program has dropped or replaced the table.
    """
    _move(table, branch, snapshot_id, lambda _table: False, tries)


def advance_main(table: Table, snapshot_id: int, is_newest: Callable[[], bool]) -> None:
    """Move `main` forward to the snapshot of a cut, unless another run has moved it there or further.

    If `main` is another version of the same cycle, as after a rebuild, ``is_newest`` decides: it returns
    whether no later cut names another snapshot.

    Raises:
        CommitConflict: see `move_branch`.
    """

    def is_done(current: Table) -> bool:
        if contains(current, snapshot_id):
            return True
        cycle = mark_at(current, current.metadata.snapshot_by_id(snapshot_id)).cycle
        main_cycle = read_mark(current).cycle
        return cycle < main_cycle or (cycle == main_cycle and not is_newest())

    _move(table, MAIN, snapshot_id, is_done, TRIES)


def contains(table: Table, snapshot_id: int) -> bool:
    """Return whether `main` is a snapshot, or was built on it."""
    if table.metadata.snapshot_by_id(snapshot_id) is None:
        # Only snapshots behind `main` expire: compaction has long built on them.
        return True
    return any(snapshot.snapshot_id == snapshot_id for snapshot in ancestors_of(table, head(table)))


def assert_head(branch: str, snapshot_id: int | None) -> AssertRefSnapshotId:
    """Return the requirement that a branch is at a snapshot; with None, that it does not exist."""
    return AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": snapshot_id})


def set_branch(table: Table, branch: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """Return the move of a branch, which keeps the retention of its snapshots."""
    former = table.metadata.refs.get(branch)
    reference = former.model_dump(by_alias=True, exclude_none=True) if former else {"type": "branch"}
    return SetSnapshotRefUpdate.model_validate({**reference, "snapshot-id": snapshot_id, "ref-name": branch})


def _move(table: Table, branch: str, snapshot_id: int, is_done: Callable[[Table], bool], tries: int) -> None:
    for last in range(1, tries + 1):
        if is_done(table):
            return
        name = ".".join(table.name())
        if table.metadata.snapshot_by_id(snapshot_id) is None:
            raise CommitConflict(_expiry_message(name, branch, snapshot_id))
        try:
            table.manage_snapshots().create_branch(snapshot_id, branch, **_retention(table, branch)).commit()
        except CommitFailedException as error:
            if last == tries:
                raise CommitConflict(
                    f"Other runs have kept changing `{name}`, so its branch `{branch}` has not been moved; "
                    "run the cycle again."
                ) from error
        except (ValueError, BadRequestError) as error:
            # Pyiceberg, or the catalog's service, raises this for a snapshot that is no longer known.
            if table.refresh().metadata.snapshot_by_id(snapshot_id) is not None:
                raise
            raise CommitConflict(_expiry_message(name, branch, snapshot_id)) from error
        else:
            return
        table = table.refresh()


def _expiry_message(name: str, branch: str, snapshot_id: int) -> str:
    return (
        f"The snapshot {snapshot_id} of `{name}` has expired since this run looked, so the branch `{branch}` "
        "has not been moved; run the cycle again."
    )


def _retention(table: Table, branch: str) -> Mapping[str, int]:
    """Return the retention settings of a branch and its snapshots, by pyiceberg's names."""
    reference = table.metadata.refs.get(branch)
    if reference is None:
        return {}
    return reference.model_dump(include={*RETENTION}, exclude_none=True, by_alias=False)
