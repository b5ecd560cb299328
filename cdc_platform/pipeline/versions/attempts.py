"""Attempts of one cycle, for several tables at a time; a second one where the source broke a guarantee.

Each snapshot of an attempt has its token. The session adds the same properties to all commits while threads
commit to different tables, so the property of a complete table contains the table's name (see `branch.py`).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, TypeVar
from uuid import uuid4

from pyspark.sql import SparkSession

from cdc_platform.lake.commits.commits import conflicts_as, has_at_most, may_be_overtaken
from cdc_platform.lake.commits.writes import is_refused_by_spark
from cdc_platform.lake.state.cuts import Cut, cut_number
from cdc_platform.pipeline.versions.branch import Attempt, marked_commits
from cdc_platform.spark.session.session_failures import find_session_failure
from cdc_platform.spark.session.session_settings import interpreting
from cdc_platform.spark.tables.typed_columns import unfit_values

PARALLEL_TABLES: Final = 4
"""Number of tables planned, built or maintained at a time; for small ones, this waits more than it works."""

SMALL_TABLE_ROWS: Final = 500_000
"""Maximum number of rows of a table that is scanned without generated code if the changes are few, too."""
ONE_TASK_TABLE_ROWS: Final = 50_000
"""Maximum number of rows of a table that one task merges if the changes are few, too."""

CONFLICT: Final = "Another run wrote to the same tables; nothing was published, and the next cycle continues."

BuildT = TypeVar("BuildT")
OutcomeT = TypeVar("OutcomeT")
Job = tuple[Attempt, BuildT]


def run_attempts(
    spark: SparkSession,
    jobs: "Sequence[Job[BuildT]]",
    with_trust: Callable[[Attempt, BuildT], OutcomeT | None],
    fall_back: Callable[[Attempt, BuildT], OutcomeT],
    newest_cut: Callable[[], Cut | None],
    *,
    has_few_changes: bool,
) -> tuple[OutcomeT, ...]:
    """Return the outcome of each attempt, in order.

    Args:
        spark: session that does the work.
        jobs: independent attempts with their builds; they share one token.
        with_trust: builds with trust in what the source guarantees; returns None if it broke a guarantee.
        fall_back: builds without that trust, as a separate attempt; attempts run one after the other.
        newest_cut: returns the newest cut.
        has_few_changes: whether each build has so few changes that one task reads them.

    Raises:
        CommitConflict: another run worked on the same branches, or has published; nothing was published.
        ValueUnfit: a value of the log does not fit the present type of its column.
    """
    if not jobs:
        return ()

    def is_within(max_rows: int) -> bool:
        return has_few_changes and all(has_at_most(attempt.base, max_rows) for attempt, _ in jobs)

    def is_overtaken(error: Exception) -> bool:
        is_foreign = may_be_overtaken(error) and find_session_failure(error) is None
        return is_foreign and cut_number(newest_cut()) != jobs[0][0].cut

    with (
        interpreting(spark, when=is_within(SMALL_TABLE_ROWS), in_one_task=is_within(ONE_TASK_TABLE_ROWS)),
        conflicts_as(CONFLICT, is_overtaken),
        conflicts_as(CONFLICT, is_refused_by_spark),
        unfit_values(),
    ):
        with (
            marked_commits(spark, jobs[0][0].properties()),
            ThreadPoolExecutor(max_workers=PARALLEL_TABLES) as pool,
        ):
            outcomes = list(pool.map(lambda job: with_trust(*job), jobs))
        return tuple(
            outcome if outcome is not None else _fall_back(spark, job, fall_back)
            for outcome, job in zip(outcomes, jobs, strict=True)
        )


def _fall_back(
    spark: SparkSession, job: "Job[BuildT]", fall_back: Callable[[Attempt, BuildT], OutcomeT]
) -> OutcomeT:
    attempt, build = job
    next_attempt = replace(attempt, fell_back=True, token=uuid4().hex)
    with marked_commits(spark, next_attempt.properties()):
        return fall_back(next_attempt, build)
