"""The part of ordering in which change streams and events differ."""

from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import DataFrame

from cdc_platform.model.stream.quarantined_records import QuarantinedRecord
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.log_window import Window
from cdc_platform.spark.log.order import LogStats, OrderedChanges


class OrderingStrategy(Protocol):
    """Steps from raw records to changes that may enter the log, for one kind of source."""

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline whose log is extended."""
        ...

    @property
    def reads_log(self) -> bool:
        """Whether ordering searches the whole log for earlier changes."""
        ...

    @property
    def leaves_deletion_markers(self) -> bool:
        """Whether a deleted row leaves a deletion marker."""
        ...

    def late_records(self, quarantine: Table, log: Table) -> tuple[QuarantinedRecord, ...]:
        """Return the quarantined records whose transactions are replayed."""
        ...

    def ordered(
        self, raw: DataFrame, window: Window, expected: int
    ) -> AbstractContextManager[OrderedChanges]:
        """Return a context with the changes of a window in order, in which they are committed.

        Args:
            raw: all raw records.
            window: the records that become changes.
            expected: approximate number of these records.
        """
        ...

    def finalise(self, ordered: DataFrame, window: Window, cache: ExitStack) -> tuple[DataFrame, LogStats]:
        """Return ordered, persisted changes as they enter the log or quarantine, and count them."""
        ...

    def finalise_few(self, rows: pa.Table, window: Window) -> tuple[pa.Table, LogStats] | None:
        """Return the same for a small batch, without a writing Spark task; None if it needs tasks."""
        ...

    def late_tables(self, window: Window, stats: LogStats) -> tuple[str, ...]:
        """Return the tables with changes in a cycle that belong before changes of former cycles."""
        ...

    def finish(self) -> None:
        """Finish the work of a cycle after the log has reached the watermark."""
        ...
