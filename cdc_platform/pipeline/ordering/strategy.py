"""The window that one cycle adds to the change log, and what differs between change streams and events."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import DataFrame

from cdc_platform.lake.commits.commits import Mark
from cdc_platform.lake.commits.writes import CycleStep
from cdc_platform.model.base.cached_values import cached_value
from cdc_platform.model.base.timestamps import OrderPlace
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.quarantined_records import QuarantinedRecord
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.file_contents import (
    between_positions,
    data_changes_between,
    measure_content,
)
from cdc_platform.pipeline.reading.window_content import WindowContent
from cdc_platform.spark.log.order import LogStats, OrderedChanges


@dataclass(frozen=True)
class Window:
    """Records between the log's watermark and the new one; the tables are the versions that it continues."""

    raw: Table
    quarantine: Table
    log: Table
    mark: Mark
    cycle: int
    watermark_micros: int
    late: tuple[QuarantinedRecord, ...] = ()
    """Quarantined records whose transactions are replayed."""
    markers: Table | None = None
    """The deletion markers, None if deleted rows leave none."""

    @property
    def step(self) -> CycleStep:
        """The step from the newest cycle of the log to the next one."""
        return CycleStep(self.mark.cycle, self.cycle)

    @property
    def places(self) -> Sequence[OrderPlace]:
        """The places of some records in the order, in proportion to their number."""
        late_records = self.late[:: self.content.rows_per_place]
        late_places = ((record.moment_micros, record.transaction_id or "") for record in late_records)
        return [*self.content.places, *late_places]

    @property
    def data_changes(self) -> str:
        """Filter of the raw data change records between the two watermarks."""
        return data_changes_between(self.mark.position_micros, self.watermark_micros)

    @cached_value
    def content(self) -> WindowContent:
        """Content of these records, without `late`; needs no Spark."""
        return measure_content(self.raw, self.mark.position_micros, self.watermark_micros)

    def tables_among(self, tables: Iterable[TableSchema]) -> list[TableSchema]:
        """Return the known tables that records of the window may change.

        A late record need not name its table.
        """
        names = {*self.content.tables, *(record.table for record in self.late)}
        return [table for table in tables if None in names or table.name in names]

    @property
    def reports(self) -> str:
        """Filter of the file reports of the window's cycles."""
        return between_positions(RecordKind.FILE, self.mark.position_micros, self.watermark_micros)


class OrderingStrategy(Protocol):
    """Steps from raw records to changes that may enter the log, for one kind of source."""

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline whose log is extended."""

    @property
    def reads_log(self) -> bool:
        """Whether ordering searches the whole log for earlier changes."""

    @property
    def leaves_deletion_markers(self) -> bool:
        """Whether a deleted row leaves a deletion marker."""

    def late_records(self, quarantine: Table, log: Table) -> tuple[QuarantinedRecord, ...]:
        """Return the quarantined records whose transactions are replayed."""

    def ordered(
        self, raw: DataFrame, window: Window, expected_records: int
    ) -> AbstractContextManager[OrderedChanges]:
        """Return a context with the changes of a window in order, in which they are committed.

        Args:
            raw: all raw records.
            window: the records that become changes.
            expected_records: approximate number of these records.
        """

    def finalise(self, changes: DataFrame, window: Window, cache: ExitStack) -> tuple[DataFrame, LogStats]:
        """Return ordered, persisted changes as they enter the log or quarantine, and count them."""

    def finalise_few(self, rows: pa.Table, window: Window) -> tuple[pa.Table, LogStats] | None:
        """Return the same for a small batch, without a writing Spark task; None if it needs tasks."""

    def late_tables(self, window: Window, stats: LogStats) -> tuple[str, ...]:
        """Return the tables with changes in a cycle that belong before changes of former cycles."""

    def finish(self) -> None:
        """Finish the work of a cycle after the log has reached the watermark."""
