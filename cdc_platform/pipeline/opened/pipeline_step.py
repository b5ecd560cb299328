"""Functions that are steps of a pipeline: they show in its progress, and their errors state what to do."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from cdc_platform.errors import CdcError
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.spark.session.session_failures import find_session_failure

P = ParamSpec("P")
T = TypeVar("T")
Step = Callable[Concatenate[Pipeline, P], T]


def pipeline_step(name: str) -> Callable[[Step[P, T]], Step[P, T]]:
    """Return a decorator: a call of the function, whose first argument is the pipeline, is a step.

    Errors of libraries that mean a lake or a Spark session that cannot be used become the platform's, for
    the command line and for Dagster.
    """

    def decorate(work: Step[P, T]) -> Step[P, T]:
        @wraps(work)
        def work_as_step(pipeline: Pipeline, /, *arguments: P.args, **options: P.kwargs) -> T:
            try:
                with pipeline.progress.step(name), reaching(pipeline.settings.lake):
                    return work(pipeline, *arguments, **options)
            except CdcError:
                raise
            except Exception as error:
                failure = find_session_failure(error)
                if failure is None:
                    raise
                raise failure from error

        return work_as_step

    return decorate
