"""Base of sources whose events belong to the cycle that reads them."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.schema.observed_columns import ObservedColumn, parse_column_types
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import Column, TableSchema
from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.files import are_few
from cdc_platform.model.stream.read_windows import ReadPlan
from cdc_platform.sources.sound_rows import is_unicode

if TYPE_CHECKING:
    import pyarrow as pa


class ArrivalTimeSource(ABC):
    """A source without its own clock and schema: its clock is this machine's."""

    def read_schema(self, micros: int) -> SchemaRead:
        """Return an empty schema: only events show the columns of tables."""
        return SchemaRead(micros, (), {}, {}, is_exact=False)

    def clock_micros(self) -> int:
        """Return the time of this machine."""
        return clock_micros()

    def start_micros(self) -> int:
        """Return the beginning of time: all existing events belong to the first cut."""
        return 1

    def as_stored(self, _table: str, _name: str, column: ObservedColumn) -> ObservedColumn:
        """Return a column unchanged."""
        return column

    def comments(self, _table: str) -> Mapping[str, str]:
        """Return no comments: events have none."""
        return {}

    def read_locally(
        self, cycle: int, plan: ReadPlan, max_s: float
    ) -> "Generator[pa.RecordBatch, None, None] | None":
        """Yield the raw records of the files of a plan; None if the files are large or many."""
        is_small = bool(max_s) and are_few(plan.inputs["files"])
        return self.read_in_process(cycle, plan) if is_small else None

    @abstractmethod
    def read_in_process(self, cycle: int, plan: ReadPlan) -> "Generator[pa.RecordBatch, None, None]":
        """Yield the raw records of the files of a plan, read by this process."""


def storable(events: Iterable[object]) -> Iterator[SourceEvent]:
    """Yield the changes whose tables a lake can have; a read reports the others as faults."""
    for event in events:
        if isinstance(event, SourceEvent) and is_unicode(event.table + event.column_types):
            yield event


def table_of(event: SourceEvent) -> TableSchema:
    """Return the table of an event, with the columns that the event has."""
    columns = [
        Column(name, column.type, column.is_primary_key, column.ordinal)
        for name, column in (parse_column_types(event.column_types) or {}).items()
    ]
    keys = [column for column in columns if column.is_primary_key]
    own_keys = [replace(column, ordinal=number) for number, column in enumerate(keys, start=1)]
    return TableSchema(event.table, (*own_keys, *(column for column in columns if not column.is_primary_key)))
