"""Rows of the newest cycles of the log: if they are few, a step reads them once for all tables.

Otherwise Spark plans a scan of the log for each table, and reads its manifests and files again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.model.base.stored_names import LOG
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.local_read import MAX_BYTES
from cdc_platform.pipeline.versions.change_source import SINGLE_TASK_CHANGES, read_span
from cdc_platform.pipeline.versions.log_span import LogSpan
from cdc_platform.spark.frames.table_frames import local_frame


@dataclass(frozen=True)
class RecentLog:
    """Rows of all tables in the cycles `(after_exclusive, until_inclusive]` of the log, in this process."""

    after_exclusive: int
    until_inclusive: int
    rows: pa.Table

    def of(self, table: str, span: LogSpan) -> pa.Table | None:
        """Return the rows of a table in a span, None if the span has other cycles."""
        if span.after_exclusive < self.after_exclusive or span.until_inclusive > self.until_inclusive:
            return None
        names, cycles = self.rows["table_name"], self.rows["cycle"]
        is_within = pc.and_(
            pc.greater(cycles, span.after_exclusive), pc.less_equal(cycles, span.until_inclusive)
        )
        return self.rows.filter(pc.and_(is_within, pc.equal(names, table)))


def fits_in_memory(pipeline: Pipeline, span: LogSpan) -> bool:
    """Return whether the changes of all tables in a span's cycles fit into this process's memory."""
    if span.changes > SINGLE_TASK_CHANGES or span.size_bytes is None:
        return False
    return span.size_bytes <= min(MAX_BYTES, pipeline.settings.local_merge_bytes)


def read_recent(pipeline: Pipeline, spans: Sequence[LogSpan]) -> RecentLog | None:
    """Return the rows of those spans that fit into this process's memory, None if none does."""
    small_spans = [span for span in spans if fits_in_memory(pipeline, span)]
    if not small_spans:
        return None
    # All end with the newest cycle, or nearly so.
    after = min(span.after_exclusive for span in small_spans)
    until = max(span.until_inclusive for span in small_spans)
    log = pipeline.lake.system_table(LOG)
    return RecentLog(after, until, log.scan(f"cycle > {after} and cycle <= {until}").to_arrow())


def read_recent_span(
    pipeline: Pipeline, spark: SparkSession, table: str, span: LogSpan, recent_log: RecentLog | None
) -> DataFrame:
    """Return the same rows as `read_span`, from the recent rows if they have them."""
    rows = recent_log.of(table, span) if recent_log is not None else None
    return local_frame(spark, rows) if rows is not None else read_span(pipeline, spark, table, span)
