"""Moving a branch of a table to one of its snapshots, which needs no Spark."""

from collections.abc import Mapping
from typing import Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict

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
        CommitConflict: others have committed to the table at each try; the branch has not moved.
    """
    for last in range(1, TRIES + 1):
        try:
            table.manage_snapshots().create_branch(snapshot_id, branch, **_retention(table, branch)).commit()
        except CommitFailedException as error:
            if last == TRIES:
                raise CommitConflict(
                    f"Other runs have kept changing `{'.'.join(table.name())}`, so its branch `{branch}` "
                    "has not been moved; run the cycle again."
                ) from error
            table = table.refresh()
        else:
            return


def _retention(table: Table, branch: str) -> Mapping[str, int]:
    """Return what is set of how long a branch and its snapshots stay, by the names of pyiceberg."""
    reference = table.metadata.refs.get(branch)
    if reference is None:
        return {}
    return reference.model_dump(include={*RETENTION}, exclude_none=True, by_alias=False)
