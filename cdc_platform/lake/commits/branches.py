"""Moving a branch of a table to one of its snapshots, which needs no Spark."""

from typing import Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict

TRIES: Final = 4


def move_branch(table: Table, branch: str, snapshot_id: int) -> None:
    """Let a branch, which is created if it is missing, end at a snapshot, wherever it ended before.

    Args:
        table: the table; what others commit to it meanwhile stays.
        branch: the branch, which may be `main`.
        snapshot_id: a snapshot of the table, of any branch.

    Raises:
        CommitConflict: others have committed to the table at each try; the branch has not moved.
    """
    for last in range(1, TRIES + 1):
        try:
            table.manage_snapshots().create_branch(snapshot_id, branch).commit()
        except CommitFailedException as error:
            if last == TRIES:
                raise CommitConflict(
                    f"Other runs have kept changing `{'.'.join(table.name())}`, so its branch `{branch}` "
                    "has not been moved; run the cycle again."
                ) from error
            table = table.refresh()
        else:
            return
