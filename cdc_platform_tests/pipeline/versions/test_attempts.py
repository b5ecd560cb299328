"""A first try and the one that replaces it share marks and guards, and have one outcome each."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyiceberg.table.snapshots import Snapshot
from pyspark.errors import PySparkException

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.commits.commits import ATTEMPT
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.pipeline.versions.attempts import Job, run_attempts
from cdc_platform.pipeline.versions.branch import SESSION_PREFIX, Attempt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

BASE = Snapshot.model_validate({"snapshot-id": 1, "timestamp-ms": 0, "manifest-list": "none"})
FIRST = Attempt("sound", BASE, 1)
FIRST_CUT = Cut(1, 0, 1, {}, 0)
JOBS: list[Job[str]] = [(FIRST, "sound"), (replace(FIRST, table="broken"), "broken")]


def with_trust(_attempt: Attempt, build: str) -> str | None:
    """Build what the source's word is good for."""
    return None if build == "broken" else build


def no_cut() -> None:
    """Return the newest cut: nothing has been published yet."""


def test_what_falls_back_is_an_attempt_of_its_own(spark: "SparkSession") -> None:
    """Its commits carry its own token, the others' theirs, and afterwards the session carries none."""
    key = SESSION_PREFIX + ATTEMPT
    seen: list[tuple[bool, bool]] = []

    def fall_back(attempt: Attempt, build: str) -> str:
        seen.append((attempt.fell_back, attempt.token == FIRST.token))
        assert attempt.token == spark.conf.get(key)
        return f"{build}, whatever the source says"

    outcomes = run_attempts(spark, JOBS, with_trust, fall_back, no_cut, has_few_changes=True)
    assert outcomes == ("sound", "broken, whatever the source says")
    assert seen == [(True, False)]
    assert spark.conf.get(key, None) is None


def test_a_conflict_of_what_falls_back_is_our_own_error(spark: "SparkSession") -> None:
    """A conflict reported by Spark is retryable, even if the source has broken a guarantee."""

    def fall_back(_attempt: Attempt, _build: str) -> str:
        return str(spark.sql("SELECT raise_error('CommitFailedException')").collect())

    with pytest.raises(CommitConflict, match="nothing was published"):
        run_attempts(spark, JOBS, with_trust, fall_back, no_cut, has_few_changes=True)


def test_another_failure_of_iceberg_is_no_conflict(spark: "SparkSession") -> None:
    """An error that would occur again is not reported as another run's doing."""

    def fall_back(_attempt: Attempt, _build: str) -> str:
        message = "org.apache.iceberg.exceptions.ValidationException: Table column names conflict"
        return str(spark.sql(f"SELECT raise_error('{message}')").collect())

    with pytest.raises(PySparkException, match="Table column names conflict"):
        run_attempts(spark, JOBS, with_trust, fall_back, no_cut, has_few_changes=True)


def test_any_failure_is_a_conflict_if_another_run_has_published(spark: "SparkSession") -> None:
    """Whatever the attempts read and write may have changed since they were planned."""

    def fall_back(_attempt: Attempt, _build: str) -> str:
        return str(spark.sql("SELECT raise_error('Cannot delete file')").collect())

    with pytest.raises(CommitConflict, match="nothing was published"):
        run_attempts(spark, JOBS, with_trust, fall_back, lambda: FIRST_CUT, has_few_changes=True)
