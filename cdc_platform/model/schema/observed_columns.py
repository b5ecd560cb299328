"""What records and looks at the source say of a table's columns."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from cdc_platform.model.schema.table_schema import ColumnType, TableSchema


@dataclass(frozen=True)
class SeenColumn:
    """A column as a record or the source describes it."""

    type: ColumnType
    is_primary_key: bool
    ordinal: int


@dataclass(frozen=True)
class Sighting:
    """Columns of a table at a commit timestamp; ``is_whole`` tells that the table had no others.

    ``is_sure`` tells that this is certain: a row may be inserted without some of its columns.
    """

    micros: int
    columns: Mapping[str, SeenColumn]
    is_whole: bool
    is_sure: bool = False

    @classmethod
    def of_table(cls, micros: int, table: TableSchema, *, is_whole: bool) -> "Sighting":
        """Return what a description of a table's columns tells."""
        columns = {
            column.name: SeenColumn(column.type, column.is_primary_key, column.ordinal)
            for column in table.columns
        }
        return cls(micros, columns, is_whole, is_sure=is_whole)


def keep_ends(ends: list[Sighting], sighting: Sighting) -> None:
    """Add the next sighting of a table, of which the first and the last of each run of equal ones stay."""
    if len(ends) > 1 and _is_alike(sighting, ends[-1]) and _is_alike(sighting, ends[-2]):
        ends.pop()
    ends.append(sighting)


def _is_alike(one: Sighting, other: Sighting) -> bool:
    is_same = one.columns is other.columns or one.columns == other.columns
    return is_same and (one.is_whole, one.is_sure) == (other.is_whole, other.is_sure)


def parse_column_types(text: str | None) -> Mapping[str, SeenColumn] | None:
    """Return what `column_types` of a record says; None where it does not say even the key."""
    try:
        listed = json.loads(text or "[]")
        seen = {
            str(column["name"]): SeenColumn(
                ColumnType.from_json(column["type"]),
                bool(column["is_primary_key"]),
                int(column["ordinal_position"]),
            )
            for column in listed
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return seen if any(column.is_primary_key for column in seen.values()) else None


def declares_types_of(table: TableSchema | None, column_types: str) -> bool:
    """Whether records have the key and the types that their table has; a new table has those of its records.

    Args:
        table: the table, None where nothing is known of it.
        column_types: as in `parse_column_types`.
    """
    seen = parse_column_types(column_types)
    if seen is None or table is None:
        return seen is not None
    return key_types(seen).keys() == {column.name for column in table.key_columns} and all(
        seen[column.name].type == column.type for column in table.columns if column.name in seen
    )


def key_types(columns: Mapping[str, SeenColumn]) -> Mapping[str, ColumnType]:
    """Return the types of those columns that are the primary key."""
    return {name: column.type for name, column in columns.items() if column.is_primary_key}
