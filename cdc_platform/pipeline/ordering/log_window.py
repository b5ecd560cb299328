"""The window of raw records that one cycle adds to the change log."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.table import Table

from cdc_platform.lake.commits.commits import Mark
from cdc_platform.lake.commits.writes import CycleStep
from cdc_platform.model.base.cached_values import cached_value
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.quarantined_records import QuarantinedRecord
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.reading.window_content import WindowContent, measure_content
from cdc_platform.pipeline.schema.evolve import between_positions, data_changes_between


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

    @property
    def step(self) -> CycleStep:
        """The step from the newest cycle of the log to the next one."""
        return CycleStep(self.mark.cycle, self.cycle)

    @property
    def data_changes(self) -> str:
        """Filter of the raw data change records between the two watermarks."""
        return data_changes_between(self.mark.position_micros, self.watermark_micros)

    @cached_value
    def content(self) -> WindowContent:
        """Content of these records, without `late`; needs no Spark."""
        return measure_content(self.raw, self.data_changes)

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
