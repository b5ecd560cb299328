"""The window of raw records that one cycle brings into the change log."""

from dataclasses import dataclass

from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.lake.commits import Mark
from cdc_platform.lake.lake import LOG
from cdc_platform.lake.writes import TickStep
from cdc_platform.model.held import HeldRecord
from cdc_platform.model.records import RecordKind
from cdc_platform.pipeline.evolve import between_positions
from cdc_platform.pipeline.lake_frames import read_own
from cdc_platform.pipeline.pipeline import Pipeline


@dataclass(frozen=True)
class Window:
    """Records between the log's watermark and the new one; the tables are the versions that it continues."""

    raw: Table
    quarantine: Table
    log: Table
    mark: Mark
    tick: int
    watermark_micros: int
    late: tuple[HeldRecord, ...] = ()
    """Quarantined records whose transactions are judged again."""

    @property
    def step(self) -> TickStep:
        """From the newest tick of the log to the one that is committed next."""
        return TickStep(self.mark.tick, self.tick)

    @property
    def reports(self) -> str:
        """Filter of what the cycles of the window report of files."""
        return between_positions(RecordKind.FILE, self.mark.position_micros, self.watermark_micros)


def log_before(pipeline: Pipeline, spark: SparkSession, window: Window) -> DataFrame:
    """Return the version of the log that a window continues."""
    return read_own(pipeline, spark, LOG, window.log)
