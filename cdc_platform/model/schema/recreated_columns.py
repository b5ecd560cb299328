"""Detection of columns that were dropped and added again unchanged: only their ordinals show it.

A new column is always the last one, and only dropping a column ahead of it moves it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import TableSchema


@dataclass(frozen=True)
class RecreatedColumn:
    """A recreated column: its ordinal at the earlier schema read, and the columns that overtook it."""

    before: int
    ahead: frozenset[str]

    def is_new(self, name: str, ordinals: Mapping[str, int]) -> bool:
        """Return whether the ordinals of a record's columns prove that it has the new column."""
        place = ordinals[name]
        return place > self.before or any(ordinals.get(other, place) < place for other in self.ahead)


def recreated_columns_of(columns: ColumnHistory, now: TableSchema) -> Mapping[str, RecreatedColumn]:
    """Return the columns outside the key that were recreated since the last schema read.

    A column that was the last one, and is the last one again, is not found.
    """
    recreated: dict[str, RecreatedColumn] = {}
    passed: list[str] = []
    furthest, is_added = 0, False
    for column in sorted(now.value_columns, key=lambda column: column.ordinal):
        before = columns.places.get(column.name)
        if before is None:
            is_added = is_added or not _may_be_old(columns, column.name)
        elif is_added or before < furthest:
            is_added = True
            recreated[column.name] = RecreatedColumn(before, _overtakers(columns, passed, before))
        else:
            furthest = before
        passed.append(column.name)
    return recreated


def _overtakers(columns: ColumnHistory, passed: list[str], before: int) -> frozenset[str]:
    return frozenset(name for name in passed if columns.places.get(name, before) >= before)


def _may_be_old(columns: ColumnHistory, name: str) -> bool:
    """Return whether a column that the last schema read did not show may have existed already."""
    return name in columns.unwatched or columns.live(name) is not None


def find_recreated(
    history: SchemaHistory, schema_read: SchemaRead | None
) -> Mapping[tuple[str, str], RecreatedColumn]:
    """Return the columns that were recreated unchanged since the last schema read, by table and name."""
    if schema_read is None or not schema_read.is_exact:
        return {}
    return {
        (schema.name, name): recreated_column
        for schema in schema_read.tables
        if (columns := history.tables.get(schema.name)) is not None and columns.is_watched
        for name, recreated_column in recreated_columns_of(columns, schema).items()
    }
