"""Checks, their scope, and their results."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
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

SHOWN: Final = 5
"""So many examples are named by a summary."""

Fact = int | float | str


@dataclass(frozen=True)
class CheckResult:
    """Result of a check.

    ``facts`` are numbers and names for the record. ``tables`` are the results of single tables, by the name
    of the table or history in a cut, where the check looks at one after the other.
    """

    passed: bool
    summary: str
    facts: Mapping[str, Fact]
    tables: Mapping[str, "CheckResult"] = field(default_factory=dict)


@dataclass(frozen=True)
class Scope:
    """The part of the log that a check looks at: everything after a cycle and its watermark.

    ``tables`` names the tables and histories that a check of whole tables reads; None means all.
    """

    after_cycle: int = 0
    after_micros: int | None = None
    tables: frozenset[str] | None = None

    def covers(self, table: str) -> bool:
        """Return whether a check reads a table or history."""
        return self.tables is None or table in self.tables


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
    """A check and its properties.

    Args:
        name: of the check, in the UI and in `cdc-platform check`.
        asset: the last part of the key of the asset that it belongs to: `raw_change_records`,
            `partition_lineage`, `change_log` or `cut`.
        description: one sentence, what holds if it passes.
        every_cycle: whether cycles run it before they publish, each every `check_every_s`. Such a check also
            runs before the first cut: one that stops the pipeline must pass there. False for what reads whole
            tables, and is meant for CI and schedules.
        run: the check.
        severity: the consequence if it fails.
        applies: returns whether a source of these capabilities can have it.
        table_name: name of the same check of one table, upon that table; empty where it looks at no single
            tables.
        reads_histories: whether it looks at histories, not at tables.
    """

    name: str
    asset: str
    description: str
    every_cycle: bool
    run: Callable[[Pipeline, SparkSession, Scope], CheckResult]
    severity: Severity
    applies: Callable[[SourceCapabilities], bool] = _always
    table_name: str = ""
    reads_histories: bool = False

    @property
    def table_description(self) -> str:
        """What holds of one table if it passes."""
        return self.description.replace("Every table", "The table", 1)

    @property
    def is_warning(self) -> bool:
        """Whether a failure is only reported."""
        return self.severity is Severity.WARNING

    @property
    def is_blocking(self) -> bool:
        """Whether a failure stops publication."""
        return self.severity is Severity.STOP


@contextmanager
def checking(pipeline: Pipeline, spark: SparkSession, name: str = "checks") -> Iterator[None]:
    """Begin a step for checks, in which Spark compiles no queries of a small lake."""
    with (
        pipeline.progress.step(name),
        interpreted(spark, when=_is_small(pipeline.lake), in_one_task=True),
    ):
        yield


def _is_small(lake: Lake) -> bool:
    try:
        cut = newest_cut(lake)
        stored_tables = map(lake.table, cut.tables if cut is not None else ())
        tables = [
            *map(lake.system_table, (RAW, LOG)),
            *(table for table in stored_tables if table is not None),
        ]
    except LakeDamaged:
        # Each check reports what it cannot read.
        return False
    return all(has_at_most(head(table), SMALL_LAKE_ROWS) for table in tables)
