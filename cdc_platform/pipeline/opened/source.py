"""Protocols that every source implements: the interface between the pipeline and its sources."""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from cdc_platform.model.schema.observed_columns import ObservedColumn
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.lineage import Lineage
from cdc_platform.model.stream.read_windows import ReadPlan, ReadRequest
from cdc_platform.model.stream.source_capabilities import SourceSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from cdc_platform.sources.loading import TaskRecords


ReadProgress = Callable[[], Mapping[str, str]]
"""Read progress of an event source: a path or partition, with the version or offset that was read.

A file that must be read once more has the version `READ_AGAIN`.
"""


class Source(Protocol):
    """Lists a source's tables, reports its clock, plans reads and sets them up in Spark.

    It connects at first use, and raises a `SourceError` when the source does not answer.
    """

    @property
    def settings(self) -> SourceSettings:
        """Location of the source, and how to read it."""

    def list_tables(self) -> tuple[TableSchema, ...]:
        """Return the tables whose changes the source delivers, as far as it can name them now."""

    def read_schema(self, micros: int) -> SchemaRead:
        """Return the schema at a moment, or the present schema if the source does not know the past one."""

    def clock_micros(self) -> int:
        """Return the time up to which the source can be read."""

    def start_micros(self) -> int:
        """Return the time at which a pipeline without a lake begins."""

    def plan(self, lineage: Lineage, request: ReadRequest, read_progress: ReadProgress) -> ReadPlan:
        """Return the read windows of a cycle for the live partitions of a lineage."""

    def as_stored(self, table: str, name: str, column: ObservedColumn) -> ObservedColumn:
        """Return a column with the type that the lake stores."""

    def read(self, spark: "SparkSession", cycle: int, plan: ReadPlan, max_tasks: int) -> "TaskRecords":
        """Return the raw records of the windows of a plan, read in at most `max_tasks` tasks."""

    def reading(self) -> AbstractContextManager[None]:
        """Return a context in which to compute such records; failed reads raise a `SourceError` there."""

    def read_locally(
        self, cycle: int, plan: ReadPlan, max_s: float
    ) -> "Generator[pa.RecordBatch, None, None] | None":
        """Yield the same records, read by this process; None if the plan needs Spark's tasks.

        Args:
            cycle: number of the cycle.
            plan: the windows to read.
            max_s: maximum seconds of source time that the plan may cover, for sources whose plans cover any.
        """

    def close(self) -> None:
        """Close the connection; the next use opens another one."""


class StreamSource(Source, Protocol):
    """A source of change records, whose tables can be compared and copied as they were at a moment."""

    def decode_again(
        self, cycle: int, token: str, sequence: str, record_text: str
    ) -> "pa.RecordBatch | None":
        """Decode the text of a malformed record again; None if it is still malformed.

        Args:
            cycle: the cycle that read the record.
            token: the partition that delivered it.
            sequence: its `record_sequence` in the lake, which the result keeps.
            record_text: the record as the source sent it.
        """

    def rows_at(self, table_name: str, micros: int) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of a table as they were at a moment."""

    def plan_copies(self, at_micros: int) -> "CopyPlanner":
        """Return a planner that cuts tables, as of a moment, into chunks to copy."""

    def read_copy(
        self, spark: "SparkSession", table: TableSchema, at_micros: int, chunks: Sequence[str]
    ) -> "DataFrame":
        """Return the rows of these chunks of a table as of a moment."""


class EventSource(Source, Protocol):
    """A source of events, in files or topics."""

    def readable(self, origins: Collection[str]) -> frozenset[str]:
        """Return the origins that are files and can be read again."""

    def comments(self, table: str) -> Mapping[str, str]:
        """Return the source's comments of a table's columns; that of "" is the table's own.

        It is empty if the source does not state comments, and has that of "" if it does.
        """

    def decode_again(
        self, origin: str, text: str, position: int | None, former_key: str | None = None
    ) -> Iterator[SourceEvent | FaultyEvent]:
        """Yield the events that the text of a faulty event contains under the present settings.

        Args:
            origin: the file, or the topic and partition, that contained the event.
            text: the text of its `FaultyEvent`.
            position: its position in the origin.
            former_key: the key that its row had before, JSON, if another event shows it.
        """


class CopyPlanner(Protocol):
    """Cuts tables into chunks."""

    def chunks(self, table: TableSchema, chunk_rows: int) -> tuple[str, ...]:
        """Return the chunks of a table, each as text for `read_copy`."""
