"""Staging branches: Spark commits to a branch of its own, and pyiceberg moves the branch that others read.

Iceberg's Java clients delete the files of a commit that they consider refused. If the answer to a commit is
lost, it is sent again: by the JDBC catalog when a connection to PostgreSQL ends, or by a gateway before a
REST catalog; the client then does not recognise the change of the table as its own. Nothing builds on such a
commit while it is on a staging branch. pyiceberg never deletes files of a commit whose state is unknown.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final
from uuid import uuid4

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.commits.commits import ancestors_of, conflicts_as, head, head_id

PREFIX: Final = "staging"


@dataclass(frozen=True)
class Staging:
    """A branch for the commits of one attempt to move another branch.

    ``start`` is where the target was when the attempt began, None if it did not exist. ``base`` is the
    snapshot on which the attempt builds. ``conflict`` is the message if another run has moved the target.
    """

    table: Table
    target: str
    start: int | None
    base: int
    conflict: str
    token: str = field(default_factory=lambda: uuid4().hex)

    @property
    def branch(self) -> str:
        """Name of the branch."""
        return staging_branch(self.target, self.base, self.token)


def staging_branch(target: str, base: int, token: str) -> str:
    """Return the name of a staging branch, which contains the snapshot that its commits build on."""
    return f"{_prefix(target)}{base}-{token}"


@contextmanager
def staged(table: Table, target: str, conflict: str) -> Iterator[str]:
    """Yield a staging branch at the head of a branch, which moves to the commits made there.

    Args:
        table: the version of the table that the attempt was planned on.
        target: the branch to move.
        conflict: message if another run has moved the branch.

    Raises:
        CommitConflict: another run has moved the branch since the attempt was planned; it stays there.
    """
    start = head_id(table, target)
    if start is None:
        # A branch begins at a snapshot.
        with conflicts_as(conflict):
            table.append(table.schema().as_arrow().empty_table(), branch=target)
        start = head_id(table, target)
    staging = Staging(table, target, start, start or 0, conflict)
    open_staging(staging)
    yield staging.branch
    publish_staging(staging)


def open_staging(staging: Staging) -> None:
    """Create the staging branch at its base.

    Raises:
        CommitConflict: another run has moved the target; nothing was changed.
    """
    _commit(staging, _set_branch(staging.table, staging.branch, staging.base))


def publish_staging(staging: Staging) -> None:
    """Move the target to the staged commits, and remove all staging branches of the target.

    The attempts on the other branches have died, or can no longer move the target.

    Raises:
        CommitConflict: another run has moved the target; it stays there.
    """
    table = staging.table.catalog.load_table(staging.table.name())
    staged_id = head_id(table, staging.branch)
    if staged_id is None:
        raise CommitConflict(staging.conflict)
    moved = _set_branch(table, staging.target, staged_id)
    removals = _removals(table, lambda name: is_staging(name, staging.target), staging.branch)
    _commit(staging, moved, *removals)


def is_staging(branch: str, target: str | None = None) -> bool:
    """Return whether a branch is a staging branch of a target; of any target, unless one is given."""
    return branch.startswith(f"{PREFIX}-" if target is None else _prefix(target))


def staged_heads(table: Table) -> Iterator[tuple[str, Snapshot]]:
    """Yield each staging branch that has commits, with its newest snapshot."""
    for name in filter(is_staging, table.metadata.refs):
        newest = next(_commits_on(table, name), None)
        if newest is not None:
            yield name, newest


def drop_staging(table: Table, target: str | None = None) -> None:
    """Remove the staging branches of attempts that have died, or that the caller overtakes.

    Usually there are none. If one of them changes at the same time, they all stay until the next call.

    Args:
        table: the present table.
        target: the branch that they were to move; all of their targets unless given.
    """
    removals = _removals(table, lambda name: is_staging(name, target))
    if removals:
        with suppress(CommitFailedException, ValueError):
            table.catalog.commit_table(
                table,
                tuple(
                    _assert_unmoved(update.ref_name, head_id(table, update.ref_name))
                    for update in removals
                    if isinstance(update, RemoveSnapshotRefUpdate)
                ),
                removals,
            )


def _prefix(target: str) -> str:
    return f"{PREFIX}-{target}-"


def _removals(
    table: Table, is_removed: Callable[[str], bool], published: str | None = None
) -> tuple[TableUpdate, ...]:
    """Return the removal of staging branches, and of the commits that no other branch builds on.

    The files of such a commit may be missing, and maintenance reads those of each snapshot.
    """
    branches = [*filter(is_removed, table.metadata.refs)]
    commits = {snapshot.snapshot_id for name in branches for snapshot in _commits_on(table, name)}
    if commits:
        # A run may build on what it has staged before, such as a version without rows.
        stay = {*table.metadata.refs, published} - ({*branches} - {published})
        commits -= {
            snapshot.snapshot_id
            for name in stay
            if name is not None
            for snapshot in ancestors_of(table, head(table, name))
        }
    removed = [RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(commits)})] if commits else []
    return (
        *(RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in branches),
        *removed,
    )


def _commits_on(table: Table, branch: str) -> Iterator[Snapshot]:
    """Yield the snapshots that a staging branch has on its base, newest first."""
    base = int(branch.rsplit("-", 2)[1])
    chain = ancestors_of(table, head(table, branch))
    return takewhile(lambda snapshot: snapshot.snapshot_id != base, chain)


def _set_branch(table: Table, branch: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """Return the move of a branch, which keeps the retention of its snapshots."""
    former = table.metadata.refs.get(branch)
    reference = former.model_dump(by_alias=True, exclude_none=True) if former else {"type": "branch"}
    return SetSnapshotRefUpdate.model_validate({**reference, "snapshot-id": snapshot_id, "ref-name": branch})


def _assert_unmoved(branch: str, snapshot_id: int | None) -> AssertRefSnapshotId:
    return AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": snapshot_id})


def _commit(staging: Staging, *updates: TableUpdate) -> None:
    unmoved = _assert_unmoved(staging.target, staging.start)
    try:
        with conflicts_as(staging.conflict):
            staging.table.catalog.commit_table(staging.table, (unmoved,), updates)
    except ValueError as error:
        # Pyiceberg raises this for a snapshot that another run has removed.
        raise CommitConflict(staging.conflict) from error
