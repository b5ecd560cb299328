"""Idempotent writes of cycles, through Spark and without it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.lake.catalog.access import CONFLICT
from cdc_platform.lake.commits.commits import AFTER, BYTES, conflicts_as, read_mark
from cdc_platform.lake.commits.data_files import DataFileWriter, FileNotes
from cdc_platform.lake.commits.filters import above
from cdc_platform.lake.commits.staging import drop_staging, staging_branch
from cdc_platform.model.base.names import quote_spark
from cdc_platform.model.base.stored_names import CYCLE


@dataclass(frozen=True)
class CycleStep:
    """Step from the newest cycle of a table to the next one to commit; there may be a gap."""

    before: int
    committed: int

    @property
    def facts(self) -> dict[str, str]:
        """The step in the summary of its commit."""
        return {AFTER: str(self.before), CYCLE: str(self.committed)}


def commit_cycle(
    frame: DataFrame,
    target: str,
    planned_on: Table,
    cycles: CycleStep,
    properties: Mapping[str, str],
) -> None:
    """Commit one cycle's rows by Spark, unless anything was committed since this one was planned.

    Args:
        frame: the rows; their column `cycle` is the number of the cycle.
        target: Spark's name of the table.
        planned_on: the version of the table that the cycle was planned on.
        cycles: the newest cycle of that version, and the one to commit.
        properties: further entries of the snapshot's summary.

    Raises:
        CommitConflict: another run was first; nothing was changed.
    """
    conflict = _conflict(target, cycles)
    with conflicts_as(conflict, is_refused_by_spark), staging_branch(planned_on, conflict) as branch:
        writer = frame.writeTo(f"{target}.{quote_spark(f'branch_{branch}')}")
        for key, value in (cycles.facts | {**properties}).items():
            writer = writer.option(f"snapshot-property.{key}", value)
        # The filter covers the rows of an interrupted run, too.
        writer.overwrite(F.col("cycle") > F.lit(cycles.before))


def append_cycle(
    rows: pa.Table,
    planned_on: Table,
    cycles: CycleStep,
    properties: Mapping[str, str],
    notes: Callable[[], FileNotes] | None = None,
) -> None:
    """Commit one cycle's rows without Spark, unless anything was committed since this one was planned.

    Args:
        rows: the rows, few; their column `cycle` is the number of the cycle.
        planned_on: the version that the cycle was planned on, of a table whose commits are not retried.
        cycles: the newest cycle of that version, and the one to commit.
        properties: further entries of the snapshot's summary.
        notes: makes the notes of the file that is written.

    Raises:
        CommitConflict: another run was first; nothing was changed.
    """
    files = DataFileWriter.of(planned_on, notes).write(rows.to_batches())
    append_files(files, planned_on, cycles, {BYTES: str(rows.nbytes), **properties})


def append_files(
    files: Iterable[DataFile], planned_on: Table, cycles: CycleStep, properties: Mapping[str, str]
) -> None:
    """Commit one cycle's rows that are already in files; otherwise like `append_cycle`.

    Raises:
        CommitConflict: another run was first; no table was changed, and the files are deleted.
    """
    with (
        conflicts_as(_conflict(".".join(planned_on.name()), cycles)),
        planned_on.transaction() as transaction,
        transaction.update_snapshot({**cycles.facts, **properties}).fast_append() as append,
    ):
        for file in files:
            append.append_data_file(file)
    drop_staging(planned_on)


def replace_cycle(rows: pa.Table, planned_on: Table, cycles: CycleStep) -> None:
    """Commit the rows of one cycle without Spark; they replace those of an interrupted run.

    Args:
        rows: the rows, not many; their column `cycle` has the number of the cycle.
        planned_on: the table as the caller has read it; its commits are not retried.
        cycles: the newest complete cycle, and the one to commit.

    Raises:
        CommitConflict: another run was first; nothing was changed.
    """
    rows = rows.cast(planned_on.schema().as_arrow())
    if read_mark(planned_on).cycle <= cycles.before:
        append_cycle(rows, planned_on, cycles, {})
        return
    with conflicts_as(_conflict(".".join(planned_on.name()), cycles)):
        is_later = above("cycle", cycles.before)
        planned_on.overwrite(rows, is_later, snapshot_properties=cycles.facts)


def _conflict(target: str, cycles: CycleStep) -> str:
    return (
        f"Cycle {cycles.committed} of {target} was not committed, because another run has "
        "committed since it was planned; the next cycle continues from there."
    )


def is_refused_by_spark(error: Exception) -> bool:
    """Return whether Spark reports a conflict of commits, however wrapped."""
    return CONFLICT.search(str(error)) is not None
