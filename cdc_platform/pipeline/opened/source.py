"""The seam between the pipeline and its sources."""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, Self

from cdc_platform.model.schema.observed_columns import ObservedColumn
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.lineage import Lineage
from cdc_platform.model.stream.read_windows import ReadPlan, ReadRequest
from cdc_platform.model.stream.source_capabilities import SourceCapabilities

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource


class SourceSettings(Protocol):
    """Location of a source, and how to read it."""

    @property
    def capabilities(self) -> SourceCapabilities:
        """Guarantees of the source about its changes."""
        ...

    @property
    def title(self) -> str:
        """Name of the source as messages say it."""
        ...

    @property
    def begins_at_present(self) -> bool:
        """Whether a new pipeline begins at the source's present, so that older rows come by a copy only."""
        ...

    def impatient(self, deadline_s: float) -> Self:
        """Return the same with at most one attempt of so many seconds, for anyone who cannot wait."""
        ...


ReadProgress = Callable[[], Mapping[str, str]]
"""Read progress of an event source: a path or partition, with the version or offset that was read.

The version of a file that is to be read once more is `READ_AGAIN`.
"""


class Description(Protocol):
    """Facts that a source reports about itself."""

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """The tables, with their columns."""
        ...


class Source(Protocol):
    """Describes what is read, tells the time, and sets up Spark's reads.

    It connects at first use, and raises a `SourceError` when the source does not answer.
    """

    @property
    def settings(self) -> SourceSettings:
        """Location of the source, and how it is read."""
        ...

    def describe(self) -> Description:
        """Return what the source hands out changes of, as far as it tells now."""
        ...

    def read_schema(self, micros: int) -> SchemaRead:
        """Return the schema at a moment, or the present one where the source does not state that."""
        ...

    def clock_micros(self) -> int:
        """Return the time up to which the source can be read."""
        ...

    def start_micros(self) -> int:
        """Return where a pipeline without a lake begins."""
        ...

    def plan(self, lineage: Lineage, request: ReadRequest, read_progress: ReadProgress) -> ReadPlan:
        """Return the windows that a cycle reads, of the partitions that a lineage tells to be live."""
        ...

    def as_stored(self, table: str, name: str, column: ObservedColumn) -> ObservedColumn:
        """Return a column as the lake keeps it."""
        ...

    def read(self, spark: "SparkSession", cycle: int, plan: ReadPlan, most_tasks: int) -> "DataFrame":
        """Return the raw records of the windows of a plan, read in at most so many tasks."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """Return a context to compute such records in: it raises what that fails of as a `SourceError`."""
        ...

    def read_locally(
        self, cycle: int, plan: ReadPlan, most_s: float
    ) -> "Generator[pa.RecordBatch, None, None] | None":
        """Yield the same, read by this process; None where a plan is for Spark's tasks.

        Args:
            cycle: number of the cycle.
            plan: what is read.
            most_s: most source time that a plan may cover, where it covers any.
        """
        ...

    def close(self) -> None:
        """Close the connection; the next use opens another one."""
        ...


class StreamSource(Source, Protocol):
    """A source of change records."""

    def decode_again(
        self, cycle: int, token: str, sequence: str, record_text: str
    ) -> "pa.RecordBatch | None":
        """Return the raw record that the text of a malformed one gives by now; None if it gives none.

        Args:
            cycle: the cycle that read it.
            token: the partition that it came by.
            sequence: its `record_sequence` in the lake, which it keeps.
            record_text: the record as it came.
        """
        ...


class EventSource(Source, Protocol):
    """A source that hands out events."""

    def readable(self, origins: Collection[str]) -> frozenset[str]:
        """Return those of these files that can be read again; topics are not files."""
        ...

    def decode_again(
        self, origin: str, text: str, position: int | None
    ) -> Iterator[SourceEvent | FaultyEvent]:
        """Yield what the text of a faulty event tells by the present settings.

        Args:
            origin: the file, or the topic and partition, that the event came by.
            text: the event, as its `FaultyEvent` had it.
            position: its place there.
        """
        ...


class ComparedSource(Source, Protocol):
    """A source that tells its rows as they were at a cut."""

    def rows_at(self, table_name: str, micros: int) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of a table as they were at a moment."""
        ...


class CopySource(Source, Protocol):
    """A source whose tables can be copied as they were at a moment."""

    def plan_copies(self, at_micros: int) -> "CopyPlanner":
        """Return what cuts tables, as they are at the moment, into chunks to copy."""
        ...

    def copy_columns(self, table: TableSchema) -> str:
        """Return the columns that a copy of the table has, as text for `copy_options`."""
        ...

    def copied_table(self, columns: str) -> TableSchema:
        """Return the table of a copy, with the columns of a text that `copy_columns` made."""
        ...

    def copy_format(self) -> "type[DataSource]":
        """Return the data source of copies, to register with a Spark session."""
        ...

    def copy_options(self, columns: str, at_micros: int, chunks: Sequence[str]) -> dict[str, str]:
        """Return the options with which Spark reads these chunks of a copy."""
        ...


class CopyPlanner(Protocol):
    """Cuts tables into chunks."""

    def chunks(self, table: TableSchema, chunk_rows: int) -> tuple[str, ...]:
        """Return what each chunk of a table reads, as text for `copy_options`."""
        ...
