"""Next versions of tables and histories: all are planned first, then built on their branches together."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar
from uuid import uuid4

from pyspark.sql import SparkSession

from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.cuts import Cut, cut_number, newest_cut
from cdc_platform.model.base.progress import Step
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.merging.build import MergeOutcome
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.attempts import run_attempts
from cdc_platform.pipeline.versions.branch import Attempt
from cdc_platform.pipeline.versions.level import find_level


class _NextVersion(Protocol):
    @property
    def has_few_changes(self) -> bool: ...

    def attempt(self, cut: int, token: str) -> Attempt: ...


BuildT = TypeVar("BuildT", bound=_NextVersion)
Builder = Callable[[Pipeline, SparkSession, Attempt, BuildT], MergeOutcome | None]
FullBuilder = Callable[[Pipeline, SparkSession, Attempt, BuildT], MergeOutcome]


def catch_up(
    pipeline: Pipeline,
    schemas: Mapping[str, TableSchema],
    plan: Callable[[TableSchema, Cut | None], BuildT | MergeOutcome],
    build_all: Callable[[Sequence[BuildT], Cut | None], tuple[MergeOutcome, ...]],
) -> tuple[MergeOutcome, ...]:
    """Bring tables or histories up to date with the log; return their outcomes in the order of `schemas`.

    Args:
        pipeline: the pipeline.
        schemas: source table of each table or history.
        plan: returns the build of a version, or the outcome if there is nothing to build.
        build_all: builds the planned versions; the outcomes are in the same order.
    """
    # Before anything is planned: if another run publishes from here on, it voids these attempts.
    cut = newest_cut(pipeline.lake)
    level, cycle = find_level(pipeline), read_mark(pipeline.lake.system_table(LOG)).cycle
    plans = [
        MergeOutcome(name, cycle) if name in level else plan(schema, cut) for name, schema in schemas.items()
    ]
    built = iter(build_all([each for each in plans if not isinstance(each, MergeOutcome)], cut))
    return tuple(each if isinstance(each, MergeOutcome) else next(built) for each in plans)


def build_versions(
    pipeline: Pipeline,
    spark: SparkSession,
    step: Step,
    builds: Sequence[BuildT],
    cut: Cut | None,
    builders: tuple[Builder[BuildT], FullBuilder[BuildT]],
) -> tuple[MergeOutcome, ...]:
    """Build planned versions with or without trust, as in `run_attempts`; `cut` was the newest one before."""
    token, number = uuid4().hex, cut_number(cut)
    with_trust, fall_back = builders
    return run_attempts(
        spark,
        [(build.attempt(number, token), build) for build in builds],
        with_trust=step.counting(partial(with_trust, pipeline, spark)),
        fall_back=step.counting(partial(fall_back, pipeline, spark)),
        newest_cut=partial(newest_cut, pipeline.lake),
        has_few_changes=all(build.has_few_changes for build in builds),
    )
