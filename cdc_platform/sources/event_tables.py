"""Tables as events report them."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cdc_platform.model.schema.observed_columns import parse_column_types
from cdc_platform.model.schema.table_schema import Column, TableSchema
from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.sources.sound_rows import is_unicode


def storable(events: Iterable[object]) -> Iterator[SourceEvent]:
    """Yield the changes whose tables a lake can have; the others are faults when they are read."""
    for event in events:
        if isinstance(event, SourceEvent) and is_unicode(event.table + event.column_types):
            yield event


def table_of(event: SourceEvent) -> TableSchema:
    """Return the columns of the table that an event is of, as it has them."""
    columns = [
        Column(name, column.type, column.is_primary_key, column.ordinal)
        for name, column in (parse_column_types(event.column_types) or {}).items()
    ]
    keys = [column for column in columns if column.is_primary_key]
    numbered = [replace(column, ordinal=number) for number, column in enumerate(keys, start=1)]
    return TableSchema(event.table, (*numbered, *(column for column in columns if not column.is_primary_key)))
