"""The branch on which a run builds a table's next version; two runs cannot mix their commits there."""

import json
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Final
from uuid import uuid4

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_platform.errors import CommitConflict, LakeError
from cdc_platform.lake.commits.branches import contains, move_branch
from cdc_platform.lake.commits.commits import (
    ATTEMPT,
    BRANCH,
    ancestors_of,
    fact,
    head,
    number_of,
    read_fact,
    read_mark,
)
from cdc_platform.lake.state.cuts import Cut, cut_number, newest_cut
from cdc_platform.lake.state.lost_tables import require_published
from cdc_platform.model.base.names import lake_table_name
from cdc_platform.model.base.stored_names import CYCLE
from cdc_platform.model.base.stored_texts import parse_stored
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.spark.frames.table_frames import read_current
from cdc_platform.spark.session.session_settings import changed_settings

COMPLETE: Final = "cdc.complete."
"""Prefix of the property of an attempt's last commit; the table's name follows it."""
FELL_BACK: Final = "cdc.fell-back"
MATCHED: Final = (
    "spark.merge-into.num-target-rows-matched-updated",
    "spark.merge-into.num-target-rows-matched-deleted",
)
SESSION_PREFIX: Final = "spark.sql.iceberg.snapshot-property."


@dataclass(frozen=True)
class Attempt:
    """One run's attempt to bring a table from a base snapshot to a cycle of the log."""

    table: str
    base: Snapshot
    cycle: int
    cut: int = 0
    """The newest cut when the run began to plan, 0 before the first."""
    fell_back: bool = False
    token: str = field(default_factory=lambda: uuid4().hex)

    def properties(self) -> dict[str, str]:
        """Return the properties of each snapshot of the attempt."""
        return {CYCLE: str(self.cycle), ATTEMPT: self.token, FELL_BACK: str(self.fell_back).lower()}

    def completion(self, commits: int, closed_rows: int | None = None) -> dict[str, str]:
        """Return the property of the attempt's last snapshot, which shows that the attempt is complete.

        Args:
            commits: number of snapshots of the attempt.
            closed_rows: number of rows that its merge must have matched; None if any number is right.
        """
        whole = _Completion(self.base.snapshot_id, commits, closed_rows, self.cut)
        return {_completion_key(lake_table_name(self.table)): json.dumps(asdict(whole))}


@dataclass(frozen=True)
class _Completion:
    """Number of commits of an attempt, and what they build on; ``matched`` is its number of closed rows."""

    base: int
    commits: int
    matched: int | None
    cut: int = 0


def _completion_key(lake_table: str) -> str:
    # Spark writes options in lower case.
    return COMPLETE + lake_table.lower()


def load_table(pipeline: Pipeline, table: str) -> Table:
    """Return a table of the lake as it is now.

    Raises:
        CommitConflict: there is none; a cycle has created it before it comes here.
        LakeDamaged: there is none, and the newest cut names it.
    """
    stored_table = pipeline.lake.table(table)
    if stored_table is None:
        require_published(pipeline.lake, None, table, newest_cut(pipeline.lake))
        raise CommitConflict(
            f"Table `{table}` is not in the lake of pipeline `{pipeline.name}`: another process has removed "
            "it, or no cycle has created it. The next cycle creates it: run `cdc-platform sync DEFS`, or "
            "materialise the table in Dagster."
        )
    return stored_table


def published_head(table: Table, name: str, cut: Cut | None) -> Snapshot | None:
    """Return the base of the next version: the snapshot in the newest cut, or its compacted version.

    `main` lies before it if the run that published the cut ended before it moved `main`.
    """
    snapshot_id = cut.tables.get(name) if cut is not None else None
    if snapshot_id is None or contains(table, snapshot_id):
        return head(table)
    return table.metadata.snapshot_by_id(snapshot_id)


def reset_branch(pipeline: Pipeline, attempt: Attempt) -> Table:
    """Point the branch at the attempt's base, without commits of other runs, and return the table."""
    pipeline.examined_tables.forget(attempt.table)
    table = load_table(pipeline, attempt.table)
    snapshot = head(table, BRANCH)
    if snapshot is None or snapshot.snapshot_id != attempt.base.snapshot_id:
        move_branch(table, BRANCH, attempt.base.snapshot_id)
    return table


def empty_version(pipeline: Pipeline, spark: SparkSession, table: str) -> Snapshot:
    """Return a snapshot of the table without any row, on the branch only.

    Raises:
        LakeError: the table was removed meanwhile.
    """
    main = head(load_table(pipeline, table))
    if main is not None:
        reset_branch(pipeline, Attempt(table, main, cycle=0))
    target = pipeline.lake.spark_table(table, BRANCH)
    read_current(spark, target).limit(0).writeTo(target).overwrite(F.lit(True))
    return require_base(head(load_table(pipeline, table), BRANCH), table)


def require_base(base: Snapshot | None, table: str) -> Snapshot:
    """Return the snapshot on which a table's next version is built.

    Raises:
        LakeError: there is none.
    """
    if base is None:
        raise LakeError(
            f"Table `{table}` has no snapshot to build on: another program has changed it. Drop the table in "
            "the lake, then rebuild it from the beginning of the log or from an older cut."
        )
    return base


def marked_commits(spark: SparkSession, properties: dict[str, str]) -> AbstractContextManager[None]:
    """Add properties to every commit of the session: a MERGE has no options of its own."""
    return changed_settings(spark, {SESSION_PREFIX + key: value for key, value in properties.items()})


def finished_head(table: Table, cycle: int, cut: Cut | None) -> Snapshot | None:
    """Return the branch's newest snapshot if the branch is one complete attempt that the next cut may name.

    The attempt must have reached ``cycle``, the newest one of the log, and must have been planned after the
    newest cut: an older one may build on what the cut replaced, such as a table that another run has rebuilt.
    Returns None if the branch is empty, or contains a part of an attempt or a mixture of two.
    """
    newest = head(table, BRANCH)
    if newest is None or read_mark(table, BRANCH).cycle != cycle:
        return None
    completion = read_fact(
        newest, _completion_key(table.name()[-1]), partial(parse_stored, shape=_Completion)
    )
    token = fact(newest, ATTEMPT)
    if completion is None or token is None or completion.cut != cut_number(cut):
        return None
    is_whole = is_built_by(table, token, completion.base, completion.commits)
    return newest if is_whole and completion.matched in (None, count_matched(newest)) else None


def is_built_by(table: Table, token: str, base: int, commits: int) -> bool:
    """Return whether the branch has exactly `commits` commits of one attempt on top of its base."""
    chain = ancestors_of(table, head(table, BRANCH))
    top = [snapshot for _, snapshot in zip(range(commits), chain, strict=False)]
    below = next(chain, None)
    is_own = len(top) == commits and all(fact(snapshot, ATTEMPT) == token for snapshot in top)
    return is_own and below is not None and below.snapshot_id == base


def count_matched(snapshot: Snapshot | None) -> int:
    """Return the number of rows that a MERGE updated or deleted, from its snapshot."""
    return sum(number_of(snapshot, key) or 0 for key in MATCHED) if snapshot is not None else 0


def verify_attempt(pipeline: Pipeline, attempt: Attempt, commits: int) -> Snapshot:
    """Return the branch's newest snapshot after checking that only this attempt built it.

    Raises:
        CommitConflict: another run has worked on the branch at the same time.
    """
    table = load_table(pipeline, attempt.table)
    newest = head(table, BRANCH)
    if newest is None or not is_built_by(table, attempt.token, attempt.base.snapshot_id, commits):
        raise CommitConflict(
            f"Another run merged `{attempt.table}` at the same time, so this one published nothing; "
            "run the cycle again."
        )
    return newest
