"""Moving a branch of a table to one of its snapshots, which needs no Spark."""

from collections.abc import Callable, Mapping
from typing import Final

from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.commits.commits import MAIN, ancestors_of, head, mark_at, read_mark

TRIES: Final = 4
RETENTION: Final = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep")


def move_branch(table: Table, branch: str, snapshot_id: int) -> None:
    """Let a branch, which is created if it is missing, end at a snapshot, wherever it ended before.

    How long its snapshots stay remains as somebody has set it.

    Args:
        table: the table; what others commit to it meanwhile stays.
        branch: the branch, which may be `main`.
        snapshot_id: a snapshot of the table, of any branch.

    Raises:
        CommitConflict: others have committed to the table at each try, or the snapshot has expired; the
            branch has not moved.
    """
    _move(table, branch, snapshot_id, lambda _table: False)


def advance_main(table: Table, snapshot_id: int, is_newest: Callable[[], bool]) -> None:
    """Let `main` end at a snapshot, unless it is there or beyond: another run may have been quicker.

    Args:
        table: the table.
        snapshot_id: what a cut names.
        is_newest: whether no later cut names another; asked where `main` is another version of the same
            cycle, since one that is rebuilt has the cycle of what it replaces.

    Raises:
        CommitConflict: as `move_branch` does.
    """

    def is_done(current: Table) -> bool:
        if contains(current, snapshot_id):
            return True
        cycle = mark_at(current, current.metadata.snapshot_by_id(snapshot_id)).cycle
        reached = read_mark(current).cycle
        return cycle < reached or (cycle == reached and not is_newest())

    _move(table, MAIN, snapshot_id, is_done)


def contains(table: Table, snapshot_id: int) -> bool:
    """Return whether `main` is, or was built upon, a snapshot."""
    if table.metadata.snapshot_by_id(snapshot_id) is None:
        # Only what lies behind `main` expires: compaction has built upon it long ago.
        return True
    return any(snapshot.snapshot_id == snapshot_id for snapshot in ancestors_of(table, head(table)))


def _move(table: Table, branch: str, snapshot_id: int, is_done: Callable[[Table], bool]) -> None:
    for last in range(1, TRIES + 1):
        if is_done(table):
            return
        name = ".".join(table.name())
        if table.metadata.snapshot_by_id(snapshot_id) is None:
            raise CommitConflict(
                f"The snapshot {snapshot_id} of `{name}` has expired since this run looked, so the branch "
                f"`{branch}` has not been moved; run the cycle again."
            )
        try:
            table.manage_snapshots().create_branch(snapshot_id, branch, **_retention(table, branch)).commit()
        except CommitFailedException as error:
            if last == TRIES:
                raise CommitConflict(
                    f"Other runs have kept changing `{name}`, so its branch `{branch}` has not been moved; "
                    "run the cycle again."
                ) from error
        except (ValueError, BadRequestError):
            # So pyiceberg names a snapshot that is unknown by now, or the service behind it.
            if table.refresh().metadata.snapshot_by_id(snapshot_id) is not None:
                raise
        else:
            return
        table = table.refresh()


def _retention(table: Table, branch: str) -> Mapping[str, int]:
    """Return what is set of how long a branch and its snapshots stay, by the names of pyiceberg."""
    reference = table.metadata.refs.get(branch)
    if reference is None:
        return {}
    return reference.model_dump(include={*RETENTION}, exclude_none=True, by_alias=False)
