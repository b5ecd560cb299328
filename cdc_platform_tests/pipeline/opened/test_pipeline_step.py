"""Steps of a pipeline show in its progress, and explain the errors of libraries."""

from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from cdc_platform.errors import CdcError, ClockBehind, LakeUnreachable, OutOfMemory
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_step import pipeline_step
from cdc_platform_tests.support.pipelines import make_pipeline


@pipeline_step("work")
def names_of_steps(pipeline: Pipeline, error: Exception | None = None) -> list[str]:
    """Return the steps in progress, or raise an error."""
    if error is not None:
        raise error
    return [report.name for report in pipeline.progress.reports()]


def test_a_function_is_a_step(tmp_path: Path) -> None:
    """The step is in progress exactly as long as the function runs, for any kind of end."""
    pipeline = make_pipeline(LakeSettings(str(tmp_path)))
    assert names_of_steps(pipeline) == ["work"]
    assert pipeline.progress.reports() == ()
    with pytest.raises(ZeroDivisionError):
        names_of_steps(pipeline, ZeroDivisionError())
    assert pipeline.progress.reports() == ()


@pytest.mark.parametrize(
    ("expected", "error"),
    [
        (LakeUnreachable, CommitStateUnknownException("no answer")),
        (OutOfMemory, SparkConnectGrpcException("java.lang.OutOfMemoryError: Java heap space")),
        (ClockBehind, ClockBehind("behind")),
    ],
)
def test_an_error_of_a_library_becomes_one_of_the_platform(
    tmp_path: Path, expected: type[CdcError], error: Exception
) -> None:
    """A run in Dagster shows the same advice as the command line; the library's error is the cause."""
    with pytest.raises(expected) as raised:
        names_of_steps(make_pipeline(LakeSettings(str(tmp_path))), error)
    assert raised.value is error or raised.value.__cause__ is error
