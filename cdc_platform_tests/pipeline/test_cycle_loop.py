"""Cycles one after the other: what is tried again, how often, and what ends them."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

import pytest
from pyiceberg.exceptions import ServerError

from cdc_platform.errors import CdcError, CommitConflict, DiskFull, LakeError, LakeUnreachable
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.pipeline import cycle_loop
from cdc_platform.pipeline.cycle_loop import describe_retry, follow_source
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform_tests.pipeline.bank import balances, bank_pipeline, expected_balances, feed_cycle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TRIES: Final = 1100
"""Nine hours of failures: a power of their number would overflow."""


def run(
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    max_failures: int | None,
    pauses: list[float] | None = None,
) -> list[CdcError]:
    """Follow a source whose cycles always fail, for some tries at most, and return what was reported.

    ``pauses`` receives how long each pause would have been.
    """
    errors: list[CdcError] = []
    lengths: list[float] = [] if pauses is None else pauses

    def fail(*_: object, **_named: object) -> None:
        raise error

    monkeypatch.setattr(cycle_loop, "run_cycle", fail)
    monkeypatch.setattr(cycle_loop, "finish_cycle", lambda *_: None)
    monkeypatch.setattr(cycle_loop, "pause", lambda seconds, _wants_more: lengths.append(seconds))
    monkeypatch.setattr(cycle_loop, "CheckRunner", lambda *_: SimpleNamespace(run_due=lambda: None))
    monkeypatch.setattr(cycle_loop, "revert_lost_commits", lambda *_: None)
    opened = SimpleNamespace(settings=SimpleNamespace(lake=LakeSettings("lake")), lake=None)
    pipeline, spark = cast("Pipeline", opened), cast("SparkSession", None)
    assert (
        list(follow_source(pipeline, spark, lambda: len(errors) < TRIES, errors.append, max_failures)) == []
    )
    return errors


@pytest.mark.parametrize("error", [CommitConflict("another run"), DiskFull("No space left on device")])
def test_what_may_pass_is_tried_again(monkeypatch: pytest.MonkeyPatch, error: CdcError) -> None:
    """Without a limit a cycle is tried as long as it is wanted, after pauses that grow to half a minute."""
    pauses: list[float] = []
    assert run(monkeypatch, error, None, pauses) == [error] * TRIES
    assert [2, 4, 8, 16, *[30] * (TRIES - 4)] == pauses


def test_an_error_that_is_tried_again_is_reported_with_its_name() -> None:
    """The lines of a run in Dagster and of the command line say what failed, and that the run continues."""
    assert describe_retry(LakeError("It is gone.")) == "LakeError: It is gone. Trying again."


def test_what_a_library_reports_of_storage_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog that fails in the middle of a cycle is an error of ours, as one that fails at the start."""
    errors = run(monkeypatch, ServerError("BadGateway"), None)
    assert {type(error) for error in errors} == {LakeUnreachable}


@pytest.mark.parametrize("error", [CommitConflict("another run"), LakeError("it is gone")])
def test_what_does_not_pass_ends_the_cycles(monkeypatch: pytest.MonkeyPatch, error: CdcError) -> None:
    """With a limit the last failure is raised; what no retry helps with is raised at once."""
    with pytest.raises(type(error)):
        run(monkeypatch, error, 3)


@pytest.mark.integration
@pytest.mark.parametrize("is_logged", [False, True])
def test_what_was_left_is_published_before_more_is_read(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch, is_logged: bool
) -> None:
    """Even if a run is interrupted soon, the cycle that the previous run read is published."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    if is_logged:
        order_changes(pipeline, spark)

    def interrupt(*_: object, **_named: object) -> None:
        raise LakeError("killed")

    monkeypatch.setattr(cycle_loop, "run_cycle", interrupt)
    with pytest.raises(LakeError, match="killed"):
        next(follow_source(pipeline, spark, lambda: True))
    cut = newest_cut(pipeline.lake)
    assert cut is not None
    assert cut.cycle == 1
    assert expected_balances(1) == balances(pipeline)
