"""The source for a Spanner change stream."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from cdc_platform.errors import PartitionBoundsInvalid, RetentionExpired, SettingError, SourceNotFound
from cdc_platform.model.base.cached_values import cached_value
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.base.timestamps import from_rfc3339, to_rfc3339
from cdc_platform.model.schema.observed_columns import ObservedColumn
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.generations import Generations, finished_parents
from cdc_platform.model.stream.lineage import Lineage, watermark_micros
from cdc_platform.model.stream.read_windows import ReadPlan, ReadRequest, ReadWindow, first_end_micros
from cdc_platform.model.stream.window_plans import plan_windows
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.failures import refused_start
from cdc_platform.sources.spanner.client.query import change_stream_query
from cdc_platform.sources.spanner.copying.copy_plan import CopyPlanner
from cdc_platform.sources.spanner.copying.copy_reader import plan_copy_tasks, rows_at
from cdc_platform.sources.spanner.schema import StreamDescription, check_nanosecond_columns, describe_stream
from cdc_platform.sources.spanner.spanner_settings import PartitionMode, SpannerSettings
from cdc_platform.sources.spark_source import SparkSource
from cdc_platform.sources.task_plan import TaskPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MAX_WINDOW_S: Final = 1200.0
"""Length of a window of a stream with mutable key ranges, whose queries may reach over half an hour."""
LOCAL_WINDOWS: Final = 64
"""Maximum number of windows that this process reads itself; Spark's tasks read more of them faster."""


class SpannerSource(SparkSource):
    """Describes a change stream, reports its clock, reads tables at a timestamp, and sets up Spark's reads.

    It connects at first use, and raises a `SourceError` when Spanner does not answer.
    """

    def __init__(self, settings: SpannerSettings) -> None:
        self.settings = settings.with_environment()
        self._is_described = False

    @cached_value
    def client(self) -> SpannerClient:
        """The connection of this process."""
        return SpannerClient(self.settings)

    def describe(self, *, may_watch_nothing: bool = False) -> StreamDescription:
        """Return the tables and options of the stream now.

        Raises:
            StreamWatchesNothing: the stream watches no table, although it must.
            SourceError: the stream or its dialect do not match the settings.
        """
        description = describe_stream(self.client, may_watch_nothing=may_watch_nothing)
        self._is_described = True
        return description

    def list_tables(self) -> tuple[TableSchema, ...]:
        """Return the tables that the stream watches now."""
        return self.describe().tables

    def decode_again(
        self, cycle: int, token: str, sequence: str, record_text: str
    ) -> "pa.RecordBatch | None":
        """Decode the text of a malformed record again; None if it is still malformed."""
        from cdc_platform.sources.spanner.stream.reader import decode_again

        return decode_again(cycle, token, sequence, record_text)

    def read_schema(self, micros: int) -> SchemaRead:
        """Return the schema at a timestamp, or the present one if the source no longer has the past one."""
        try:
            return describe_stream(self.client, micros, may_watch_nothing=True)
        except RetentionExpired:
            return replace(describe_stream(self.client, may_watch_nothing=True), micros=micros)

    def clock_micros(self) -> int:
        """Return the source's time; the first call checks that the source can be read.

        Raises:
            SourceError: The stream or its dialect do not match the settings.
        """
        if not self._is_described:
            # A stream that was suspended still has the records from before.
            self.describe(may_watch_nothing=True)
        return self.client.clock_micros()

    def start_micros(self) -> int:
        """Return the time at which a pipeline without a lake begins: the setting, else the source's present.

        Later calls may return later times; the caller keeps the first one.

        Raises:
            RetentionExpired: The stream no longer has records from the start on.
            SettingError: The start lies in the future, or before the stream's creation; or a setting names
                columns that are not timestamps.
            StreamWatchesNothing: The stream watches no table.
        """
        description, now_micros = self.describe(), self.client.clock_micros()
        if self.settings.nanosecond_columns:
            check_nanosecond_columns(description, self.settings.nanosecond_columns)
        if self.settings.start_timestamp is None:
            return now_micros
        start_micros = from_rfc3339(self.settings.start_timestamp)
        if start_micros > now_micros:
            raise SettingError(
                "start_timestamp",
                f"lies in the future; the clock of the source says: {to_rfc3339(now_micros)}",
            )
        self._try_start(start_micros, now_micros)
        return start_micros

    def rows_at(self, table_name: str, micros: int) -> "Iterator[pa.RecordBatch]":
        """Yield the watched columns of all rows of a table as they were at the timestamp.

        Raises:
            SourceNotFound: The stream does not watch the table.
            RetentionExpired: The source no longer keeps that version.
        """
        # The table's columns at that timestamp.
        tables = describe_stream(self.client, micros).tables
        table = next((table for table in tables if table.name == table_name), None)
        if table is None:
            raise SourceNotFound(
                f"The {self.settings.title} does not watch the table `{table_name}`. Add it to the stream "
                "(ALTER CHANGE STREAM), or leave it out of the setting `tables`"
            )
        return rows_at(self.client, table, micros)

    def plan(
        self,
        lineage: Lineage,
        request: ReadRequest,
        read_progress: object,  # noqa: ARG002  positions are in the lineage
    ) -> ReadPlan:
        """Return a window for each live partition that is behind the source's clock, and each new placement.

        If partitions are chosen, only they and new placements are read, without their children.
        """
        windows = plan_windows(lineage, request)
        if windows:
            # Also if partitions are chosen: they may hold the watermark, which then passes the placement.
            windows += self._windows_of_added(lineage, windows[0].end_inclusive_micros)
        if self.client.partition_mode is PartitionMode.MUTABLE_KEY_RANGE:
            # Each window has its own end: a partition that cannot be read does not delay the others.
            windows = tuple(window.shorten(MAX_WINDOW_S) for window in windows)
        return ReadPlan(windows, finished_parents=finished_parents(lineage) if request.keys is None else None)

    def _windows_of_added(self, lineage: Lineage, end_micros: int) -> tuple[ReadWindow, ...]:
        """Return a window for each placement without known partitions; it has had no records so far."""
        root = lineage.partitions.get(ROOT_TOKEN)
        if root is not None and not root.is_finished:
            return ()
        partitions = [
            token
            for token in self.client.fetch_placement_tokens()
            if not any(partition.startswith(token) for partition in lineage.partitions)
        ]
        before_micros = watermark_micros(lineage) if partitions else None
        return tuple(
            ReadWindow(token, before_micros, end_micros) for token in partitions if before_micros is not None
        )

    def as_stored(self, table: str, name: str, column: ObservedColumn) -> ObservedColumn:
        """Return a column with its type in the lake, which is text for timestamps that keep nanoseconds."""
        is_kept = f"{table}.{name}" in self.settings.nanosecond_columns
        return replace(column, type=column.type.with_nanoseconds()) if is_kept else column

    def read_locally(
        self, cycle: int, plan: ReadPlan, max_s: float
    ) -> "Generator[pa.RecordBatch, None, None] | None":
        """Yield the raw records of the windows of a plan; None if the windows are long or many."""
        if len(plan.windows) > LOCAL_WINDOWS or any(window.duration_s > max_s for window in plan.windows):
            return None
        from cdc_platform.sources.spanner.stream.window_pool import read_together
        from cdc_platform.sources.spanner.stream.window_reader import read_window

        parents = plan.finished_parents
        generations = None if parents is None else Generations(first_end_micros(plan.windows), parents)
        return read_together(partial(read_window, self.client, cycle), plan.windows, generations)

    def plan_tasks(self, cycle: int, plan: ReadPlan, max_tasks: int) -> TaskPlan:
        """Return the read of the windows of a plan in at most `max_tasks` tasks."""
        from cdc_platform.sources.spanner.stream.reader import plan_tasks

        # Saves the tasks the requests for these.
        settings = replace(
            self.settings, dialect=self.client.dialect, partition_mode=self.client.partition_mode
        )
        return plan_tasks(settings.to_options(), cycle, plan, max_tasks)

    def plan_copies(self, at_micros: int) -> CopyPlanner:
        """Return a planner that cuts tables, as of a moment, into chunks to copy."""
        return CopyPlanner(self.client, at_micros)

    def read_copy(
        self, spark: "SparkSession", table: TableSchema, at_micros: int, chunks: Sequence[str]
    ) -> "DataFrame":
        """Return the rows of these chunks of a table, one task for each.

        Raises:
            LakeDamaged: the planner did not write some chunk.
        """
        from cdc_platform.sources.loading import load_tasks

        return load_tasks(spark, plan_copy_tasks(self.settings.to_options(), table, at_micros, chunks))

    def close(self) -> None:
        """Close the connection; the next use opens another one."""
        self.client.close()

    def _try_start(self, start_micros: int, now_micros: int) -> None:
        # A query that lists partitions returns at once, and rejects a start that is too old.
        stream = self.settings.change_stream
        arguments = start_micros, start_micros, self.settings.heartbeat_ms, self.client.read_function
        try:
            for token in self.client.fetch_placement_tokens() or [ROOT_TOKEN]:
                self.client.fetch(change_stream_query(stream, token, *arguments))
        except RetentionExpired as error:
            kept_s = self.describe().retention_s
            raise refused_start(self.settings, error, start_micros, now_micros, kept_s) from error
        except PartitionBoundsInvalid as error:
            raise SettingError("start_timestamp", f"is refused by the source. {error}") from error
