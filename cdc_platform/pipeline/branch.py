"""Building a table's next version on its branch, so that two runs at once cannot mix their commits."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from cdc_platform.errors import CommitConflict, LakeError
from cdc_platform.lake.commits import ATTEMPT, BRANCH, TICK, ancestors_of, fact, head
from cdc_platform.pipeline.pipeline import Pipeline

COMPLETE: Final = "cdc.complete"
FELL_BACK: Final = "cdc.fell-back"
SESSION_PREFIX: Final = "spark.sql.iceberg.snapshot-property."


@dataclass(frozen=True)
class Attempt:
    """One run's try to bring a table from a base snapshot to a tick of the log."""

    table: str
    base: Snapshot
    tick: int
    fell_back: bool = False
    token: str = field(default_factory=lambda: uuid4().hex)

    def properties(self, *, is_last: bool) -> dict[str, str]:
        """Return the entries that each snapshot of the attempt carries."""
        return {
            TICK: str(self.tick),
            ATTEMPT: self.token,
            COMPLETE: str(is_last).lower(),
            FELL_BACK: str(self.fell_back).lower(),
        }


def load_table(pipeline: Pipeline, table: str) -> Table:
    """Return a table of the lake as it is now.

    Raises:
        LakeError: there is none.
    """
    found = pipeline.lake.table(table)
    if found is None:
        raise LakeError(f"Table `{table}` is not in the lake; materialise it first.")
    return found


def reset_branch(pipeline: Pipeline, spark: SparkSession, attempt: Attempt) -> None:
    """Point the branch at the attempt's base, whatever another run has left on it."""
    found = head(load_table(pipeline, attempt.table), BRANCH)
    if found is None or found.snapshot_id != attempt.base.snapshot_id:
        spark.sql(
            f"ALTER TABLE {pipeline.lake.spark_table(attempt.table)} "
            f"CREATE OR REPLACE BRANCH {BRANCH} AS OF VERSION {attempt.base.snapshot_id}"
        )


@contextmanager
def marked_commits(spark: SparkSession, properties: dict[str, str]) -> Iterator[None]:
    """Let every commit of the session carry these entries: a MERGE takes no options of its own."""
    for key, value in properties.items():
        spark.conf.set(SESSION_PREFIX + key, value)
    try:
        yield
    finally:
        for key in properties:
            spark.conf.unset(SESSION_PREFIX + key)


def finished_head(table: Table) -> Snapshot | None:
    """Return the branch's newest snapshot if one attempt has made it completely, upon a version of `main`.

    None when the branch holds nothing, a part of an attempt, or a mixture of two.
    """
    newest = head(table, BRANCH)
    if newest is None or fact(newest, COMPLETE) != "true":
        return None
    token = fact(newest, ATTEMPT)
    for snapshot in ancestors_of(table, newest):
        if fact(snapshot, ATTEMPT) != token:
            return newest
        if snapshot is not newest and fact(snapshot, COMPLETE) == "true":
            return None
    return newest


def verify_attempt(pipeline: Pipeline, attempt: Attempt, commits: int) -> Snapshot:
    """Return the branch's newest snapshot, after making sure that the attempt alone has built it.

    Raises:
        CommitConflict: another run has worked on the branch at the same time.
    """
    table = load_table(pipeline, attempt.table)
    chain = ancestors_of(table, head(table, BRANCH))
    built = [next(chain, None) for _ in range(commits)]
    below = next(chain, None)
    ours = all(snapshot is not None and fact(snapshot, ATTEMPT) == attempt.token for snapshot in built)
    if not ours or below is None or below.snapshot_id != attempt.base.snapshot_id or built[0] is None:
        raise CommitConflict(
            f"Another run merged `{attempt.table}` at the same time, so this one published nothing; "
            "run the tick again."
        )
    return built[0]
