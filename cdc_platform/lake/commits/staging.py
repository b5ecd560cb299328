"""Staging branches: Spark commits to a branch of its own, and pyiceberg moves `main` to these commits.

Iceberg's Java clients delete the files of a commit that they consider refused. If the answer to a commit is
lost, it is sent again: by the JDBC catalog when a connection to PostgreSQL ends, or by a gateway before a
REST catalog; the client then does not recognise the change of the table as its own. Nothing builds on such a
commit while it is on a staging branch. pyiceberg never deletes files of a commit whose state is unknown.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Final
from uuid import uuid4

from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate, TableUpdate

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.commits.branches import TRIES, assert_head, set_branch
from cdc_platform.lake.commits.commits import (
    MAIN,
    ancestors_of,
    conflicts_as,
    head,
    head_id,
    may_be_overtaken,
)

_NAME: Final = re.compile(r"staging-(?P<base>\d+)-[0-9a-f]{32}")
"""A staging branch, and the snapshot that its commits build on."""


@contextmanager
def staging_branch(table: Table, conflict: str) -> Iterator[str]:
    """Yield a staging branch at the head of `main`, which moves to the commits made there.

    Args:
        table: the version that the commits are planned on, of a table whose commits are not retried if it
            is empty.
        conflict: message if another run has moved `main`.

    Raises:
        CommitConflict: another run has moved `main` since the table was loaded, and it stays there; or
            another run has removed the branch.
    """
    start = _begin(table, conflict)
    branch = f"staging-{start}-{uuid4().hex}"
    if not _commit(table, start, set_branch(table, branch, start)):
        raise CommitConflict(conflict)
    try:
        # Iceberg commits to `main` as it is now if the branch no longer exists, and may refuse that.
        with conflicts_as(conflict, lambda e: may_be_overtaken(e) and not _is_current(table, branch, start)):
            yield branch
        _publish(table, branch, start, conflict)
    except Exception:
        # The error that ended the attempt is the one to report.
        with suppress(Exception):
            _remove(_reload(table), [branch])
        raise


def is_staging(table: Table, ref: str) -> bool:
    """Return whether a reference of a table is a staging branch, and not one of another program."""
    reference = table.metadata.refs[ref]
    is_branch = reference.snapshot_ref_type is SnapshotRefType.BRANCH
    return is_branch and _NAME.fullmatch(ref) is not None


def drop_staging(table: Table) -> None:
    """Remove the staging branches of attempts that have died, or that the caller overtakes.

    Usually there are none. If one of them changes at the same time, they all stay until the next call.
    """
    with suppress(CommitFailedException, ValueError, BadRequestError):
        _remove(table, _staging_of(table))


def _begin(table: Table, conflict: str) -> int:
    """Return the snapshot of `main`; an empty table gets one without rows, since branches need one."""
    start = head_id(table)
    if start is not None:
        return start
    with conflicts_as(conflict):
        table.append(table.schema().as_arrow().empty_table())
    return table.metadata.snapshots[-1].snapshot_id


def _publish(table: Table, branch: str, start: int, conflict: str) -> None:
    """Move `main` to the staged commits, and remove all staging branches: no other attempt can move it."""
    staged_id: int | None = None
    for _ in range(TRIES):
        current = _reload(table)
        staged_id = head_id(current, branch) or staged_id
        if staged_id is not None and head_id(current) == staged_id != start:
            # An answer was lost.
            return
        if staged_id is None or branch not in current.metadata.refs or head_id(current) != start:
            break
        updates = (set_branch(current, MAIN, staged_id), *_removals(current, _staging_of(current), branch))
        if _commit(current, start, *updates):
            return
    raise CommitConflict(conflict)


def _is_current(table: Table, branch: str, start: int) -> bool:
    """Return whether a staging branch still exists, and `main` is where it began."""
    current = _reload(table)
    return branch in current.metadata.refs and head_id(current) == start


def _reload(table: Table) -> Table:
    return table.catalog.load_table(table.name())


def _staging_of(table: Table) -> list[str]:
    return [ref for ref in table.metadata.refs if is_staging(table, ref)]


def _remove(table: Table, branches: list[str]) -> None:
    """Remove those of some staging branches that exist, unless one of them changes at the same time."""
    branches = [branch for branch in branches if branch in table.metadata.refs]
    if not branches:
        return
    requirements = tuple(assert_head(branch, head_id(table, branch)) for branch in branches)
    table.catalog.commit_table(table, requirements, _removals(table, branches))


def _removals(table: Table, branches: list[str], published_branch: str = "") -> tuple[TableUpdate, ...]:
    """Return the removal of staging branches, and of their commits whose files are gone.

    Expiry deletes the other commits with their files, but reads the files of each snapshot before.
    """
    ids = [
        snapshot.snapshot_id
        for branch in branches
        if branch != published_branch
        for snapshot in _commits_on(table, branch)
        if not table.io.new_input(snapshot.manifest_list).exists()
    ]
    removals = [RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids})] if ids else []
    return (
        *(RemoveSnapshotRefUpdate.model_validate({"ref-name": branch}) for branch in branches),
        *removals,
    )


def _commits_on(table: Table, branch: str) -> Iterator[Snapshot]:
    """Yield the snapshots that a staging branch has on its base, newest first."""
    match = _NAME.fullmatch(branch)
    base = int(match["base"]) if match is not None else 0
    return takewhile(lambda snapshot: snapshot.snapshot_id != base, ancestors_of(table, head(table, branch)))


def _commit(table: Table, start: int, *updates: TableUpdate) -> bool:
    """Commit updates while `main` is at a snapshot; return whether no other run was first."""
    try:
        table.catalog.commit_table(table, (assert_head(MAIN, start),), updates)
    except (CommitFailedException, ValueError, BadRequestError):
        # Pyiceberg, or the catalog's service, raises the others for a snapshot that has been removed.
        return False
    return True
