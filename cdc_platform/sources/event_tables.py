"""Tables as events tell of them."""

from dataclasses import replace

from cdc_platform.model.events import SourceEvent
from cdc_platform.model.sightings import parse_column_types
from cdc_platform.model.table_schema import Column, TableSchema


def table_of(event: SourceEvent) -> TableSchema:
    """Return the columns of the table that an event is of, as it tells them."""
    columns = [
        Column(name, seen.type, seen.is_primary_key, seen.ordinal)
        for name, seen in (parse_column_types(event.column_types) or {}).items()
    ]
    keys = [column for column in columns if column.is_primary_key]
    numbered = [replace(column, ordinal=number) for number, column in enumerate(keys, start=1)]
    return TableSchema(event.table, (*numbered, *(column for column in columns if not column.is_primary_key)))
