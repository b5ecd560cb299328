"""Checks, their scope, and their results."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from pyspark.sql import SparkSession

from cdc_platform.errors import LakeDamaged
from cdc_platform.lake.catalog.lake import LOG, RAW, Lake
from cdc_platform.lake.commits.commits import has_at_most, head
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.model.stream.source_capabilities import SourceCapabilities
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.spark.frames.small import interpreted

SMALL_LAKE_ROWS: Final = 20_000
"""Up to so many rows in each table a lake is read without generated code."""

Fact = int | float | str


@dataclass(frozen=True)
class CheckResult:
    """Result of a check; ``facts`` are numbers and names for the record."""

    passed: bool
    summary: str
    facts: Mapping[str, Fact]


@dataclass(frozen=True)
class Scope:
    """The part of the log that a check looks at: everything after a cycle and its watermark."""

    after_cycle: int = 0
    after_micros: int | None = None


EVERYTHING = Scope()


def _always(_capabilities: SourceCapabilities) -> bool:
    return True


class Severity(Enum):
    """The consequence of a check that fails."""

    WARNING = auto()
    """It is only reported: the finding may be legitimate, but users need to know about it."""
    FAILURE = auto()
    """It fails `cdc-platform check` and is an error in Dagster, while the pipeline goes on."""
    STOP = auto()
    """It also ends the run before anything more is published."""


@dataclass(frozen=True)
class Check:
    """One promise.

    ``asset`` is the layer it belongs to. ``every_cycle`` is False for what reads whole tables and
    is meant for CI and schedules rather than for every cycle. ``applies`` returns whether the check makes
    sense for a source.
    """

    name: str
    asset: str
    description: str
    every_cycle: bool
    run: Callable[[Pipeline, SparkSession, Scope], CheckResult]
    severity: Severity = Severity.STOP
    applies: Callable[[SourceCapabilities], bool] = _always

    @property
    def is_warning(self) -> bool:
        """Whether a failure is only reported."""
        return self.severity is Severity.WARNING

    @property
    def is_blocking(self) -> bool:
        """Whether a failure stops publication."""
        return self.severity is Severity.STOP


def checking(pipeline: Pipeline, spark: SparkSession) -> AbstractContextManager[None]:
    """Let the session make checks meanwhile; those of a small lake take longer to compile than to run."""
    return interpreted(spark, when=_is_small(pipeline.lake), in_one_task=True)


def _is_small(lake: Lake) -> bool:
    try:
        cut = newest_cut(lake)
        stored_tables = map(lake.table, cut.tables if cut is not None else ())
        tables = [
            *map(lake.system_table, (RAW, LOG)),
            *(table for table in stored_tables if table is not None),
        ]
    except LakeDamaged:
        # Each check tells what it cannot read.
        return False
    return all(has_at_most(head(table), SMALL_LAKE_ROWS) for table in tables)
