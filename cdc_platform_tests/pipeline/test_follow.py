"""Ticks one after the other: what is tried again, how often, and what ends them."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from cdc_platform.errors import CdcError, CommitConflict, LakeError
from cdc_platform.pipeline import follow
from cdc_platform.pipeline.follow import follow_source
from cdc_platform.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(monkeypatch: pytest.MonkeyPatch, error: CdcError, most_failures: int | None) -> list[CdcError]:
    """Follow a source whose ticks always fail, for ten tries at most, and return what was told."""
    told: list[CdcError] = []

    def fail(*_: object, **_named: object) -> None:
        raise error

    monkeypatch.setattr(follow, "run_tick", fail)
    monkeypatch.setattr(follow, "pause", lambda *_: None)
    monkeypatch.setattr(follow, "Guard", lambda *_: SimpleNamespace(look=lambda: None))
    pipeline, spark = cast("Pipeline", None), cast("SparkSession", None)
    assert list(follow_source(pipeline, spark, lambda: len(told) < 10, told.append, most_failures)) == []
    return told


def test_what_may_pass_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit a tick is tried for as long as it is wanted."""
    assert len(run(monkeypatch, CommitConflict("another run"), None)) == 10


@pytest.mark.parametrize("error", [CommitConflict("another run"), LakeError("it is gone")])
def test_what_does_not_pass_ends_the_ticks(monkeypatch: pytest.MonkeyPatch, error: CdcError) -> None:
    """With a limit the last failure is raised; what no retry helps with is raised at once."""
    with pytest.raises(type(error)):
        run(monkeypatch, error, 3)
