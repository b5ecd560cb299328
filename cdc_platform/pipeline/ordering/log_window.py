"""The window of raw records that one cycle brings into the change log."""

from dataclasses import dataclass

from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.lake.commits.commits import Mark
from cdc_platform.lake.commits.writes import CycleStep
from cdc_platform.model.stream.quarantined_records import HeldRecord
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.core.pipeline import Pipeline
from cdc_platform.pipeline.schema.evolve import between_positions
from cdc_platform.pipeline.versions.lake_frames import read_own


@dataclass(frozen=True)
class Window:
    """Records between the log's watermark and the new one; the tables are the versions that it continues."""

    raw: Table
    quarantine: Table
    log: Table
    mark: Mark
    cycle: int
    watermark_micros: int
    late: tuple[HeldRecord, ...] = ()
    """Quarantined records whose transactions are judged again."""

    @property
    def step(self) -> CycleStep:
        """From the newest cycle of the log to the one that is committed next."""
        return CycleStep(self.mark.cycle, self.cycle)

    @property
    def reports(self) -> str:
        """Filter of what the cycles of the window report of files."""
        return between_positions(RecordKind.FILE, self.mark.position_micros, self.watermark_micros)


def log_before(pipeline: Pipeline, spark: SparkSession, window: Window) -> DataFrame:
    """Return the version of the log that a window continues."""
    return read_own(pipeline, spark, LOG, window.log)
