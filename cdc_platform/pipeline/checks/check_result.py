"""Checks, their scope, and their results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import chain
from typing import Final

from pyspark.sql import SparkSession

from cdc_platform.errors import CheckFailed, LakeDamaged
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.commits.commits import has_at_most, head
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.model.base.progress import Step
from cdc_platform.model.base.stored_names import LOG, RAW
from cdc_platform.model.stream.source_capabilities import SourceCapabilities
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.spark.session.session_settings import interpreting

SMALL_LAKE_ROWS: Final = 20_000
"""Maximum number of rows per table of a lake that is read without generated code."""

SHOWN: Final = 5
"""Maximum number of examples that a summary names."""

Fact = int | float | str


@dataclass(frozen=True)
class CheckResult:
    """Result of a check.

    ``facts`` are for the record: Dagster plots numbers, so one that only grows is a text. ``tables`` are the
    results of single tables, by their names in a cut, for checks that examine tables one by one.
    ``is_partial`` states whether only a new part of the log was examined; `Check.examine` sets it.
    """

    passed: bool
    summary: str
    facts: Mapping[str, Fact]
    tables: Mapping[str, "CheckResult"] = field(default_factory=dict)
    is_partial: bool = False


@dataclass(frozen=True)
class Scope:
    """The part of the log that a check covers: everything after a cycle and its watermark.

    ``tables`` names the tables and histories that a check of whole tables reads; None means all.
    """

    after_cycle: int = 0
    after_micros: int | None = None
    tables: frozenset[str] | None = None

    def covers(self, table: str) -> bool:
        """Return whether a check reads a table or history."""
        return self.tables is None or table in self.tables


EVERYTHING = Scope()


class Severity(Enum):
    """The consequence of a check that fails."""

    WARNING = auto()
    """The check only reports: the finding may be legitimate, but users need to know about it."""
    FAILURE = auto()
    """`cdc-platform check` fails, and Dagster shows an error, but the pipeline continues."""
    STOP = auto()
    """The run also ends before it publishes anything more."""


@dataclass(frozen=True)
class Check:
    """A check and its properties.

    Args:
        name: name in the UI and in `cdc-platform check`.
        asset: the last part of the key of its asset: `raw_change_records`, `partition_lineage`, `change_log`
            or `cut`.
        description: one sentence that is true if the check passes.
        run: function that runs the check; `examine` calls it.
        every_cycle: whether cycles run it before they publish, every `check_every_s`. Such a check also runs
            before the first cut, where a check that stops the pipeline must pass. False for checks that read
            whole tables, which are meant for CI and schedules.
        severity: the consequence of a failure.
        applies: returns whether the check makes sense for a source with given capabilities.
        table_name: name of the check on a single table; empty if it does not check single tables.
        reads_histories: whether it checks histories instead of tables.
        is_incremental: whether it can examine a new part of the log alone; others always examine everything.
    """

    name: str
    asset: str
    description: str
    run: Callable[[Pipeline, SparkSession, Scope], CheckResult]
    every_cycle: bool = True
    severity: Severity = Severity.STOP
    applies: Callable[[SourceCapabilities], bool] = lambda _: True
    table_name: str = ""
    reads_histories: bool = False
    is_incremental: bool = False

    def examine(self, pipeline: Pipeline, spark: SparkSession, scope: Scope) -> CheckResult:
        """Run the check on a scope, or on all of the log if it cannot examine a part of it."""
        if not self.is_incremental:
            scope = Scope(tables=scope.tables)
        # A warning reports what is new, and ends when nothing is.
        is_partial = scope.after_cycle > 0 and not self.is_warning
        return replace(self.run(pipeline, spark, scope), is_partial=is_partial)

    @property
    def table_description(self) -> str:
        """Sentence that is true for one table if the check passes."""
        return self.description.replace("Every table", "The table", 1)

    @property
    def is_warning(self) -> bool:
        """Whether a failure is only reported."""
        return self.severity is Severity.WARNING

    @property
    def is_blocking(self) -> bool:
        """Whether a failure stops publication."""
        return self.severity is Severity.STOP


def raise_failures(results: Mapping[Check, CheckResult]) -> None:
    """Raise `CheckFailed` with the blocking checks that have failed, if there are any."""
    failures = {
        check.name: result.summary
        for check, result in results.items()
        if check.is_blocking and not result.passed
    }
    if failures:
        raise CheckFailed(failures)


@contextmanager
def checking(
    pipeline: Pipeline, spark: SparkSession, checks: Sequence[Check], name: str = "checks", total: int = 0
) -> Iterator[Step]:
    """Yield a step for checks, counted if given a total; in it Spark compiles no query of a small lake."""
    # The checks of cycles read no merged tables, of which there may be hundreds.
    reads_tables = not all(check.every_cycle for check in checks)
    with (
        pipeline.progress.step(name, "checks" if total else "", total or None) as step,
        interpreting(spark, when=_is_small(pipeline.lake, reads_tables=reads_tables), in_one_task=True),
    ):
        yield step


def _is_small(lake: Lake, *, reads_tables: bool) -> bool:
    try:
        cut = newest_cut(lake) if reads_tables else None
        tables = chain(
            map(lake.system_table, (RAW, LOG)), map(lake.table, cut.tables if cut is not None else ())
        )
        return all(table is None or has_at_most(head(table), SMALL_LAKE_ROWS) for table in tables)
    except LakeDamaged:
        # Each check reports what it cannot read.
        return False
