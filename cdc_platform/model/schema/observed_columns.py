"""Columns of a table that records and schema reads show."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cdc_platform.model.base.timestamps import OrderPlace
from cdc_platform.model.schema.table_schema import ColumnType, TableSchema

MAY_NOT_FIT: Final = "may_not_fit"
"""Member of a column in `column_types`, true if its values may not fit its declared type."""


DATABASE: Final = "database"
"""Member of a key column in `column_types`: the database of the table, if its name does not contain it.
Records that show no columns state it alone."""


@dataclass(frozen=True)
class ObservedColumn:
    """The description of a column by a record or by the source.

    ``database`` is that of the table, if the column belongs to its key and the name of the table in the lake
    does not contain it.
    """

    type: ColumnType
    is_primary_key: bool
    ordinal: int
    database: str = ""


@dataclass(frozen=True)
class ObservedColumns:
    """Columns of a table at a commit timestamp; ``is_whole`` means that the table had no others.

    ``is_sure`` means that this is certain; an inserted row may lack some of its table's columns.
    ``order`` is the ordering key of the event that shows them; it is empty if the timestamp is exact.
    """

    micros: int
    columns: Mapping[str, ObservedColumn]
    is_whole: bool
    is_sure: bool = False
    order: str = ""

    @property
    def place(self) -> OrderPlace:
        """The place in the order at which the table had these columns."""
        return self.micros, self.order

    @property
    def database(self) -> str:
        """The database of the table; empty if it is unknown or in the name of the table."""
        return database_of(self.columns)

    @classmethod
    def of_table(cls, micros: int, table: TableSchema, *, is_whole: bool) -> "ObservedColumns":
        """Return the columns of a table's schema as an observation."""
        columns = {
            column.name: ObservedColumn(column.type, column.is_primary_key, column.ordinal)
            for column in table.columns
        }
        return cls(micros, columns, is_whole, is_sure=is_whole)


def parse_column_types(text: str | None) -> Mapping[str, ObservedColumn] | None:
    """Parse `column_types` of a record; None if the text does not even name the key."""
    try:
        entries = json.loads(text or "[]")
        columns = {
            str(column["name"]): ObservedColumn(
                ColumnType.from_json(column["type"]),
                bool(column["is_primary_key"]),
                int(column["ordinal_position"]),
                str(column.get(DATABASE, "")),
            )
            for column in entries
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return columns if any(column.is_primary_key for column in columns.values()) else None


def declares_types_of(table: TableSchema | None, column_types: str) -> bool:
    """Return whether the declared types of records guarantee that their values fit their table.

    The records must have its key and types, and no column marked `may_not_fit`; a new table gets their types.

    Args:
        table: the table, None if it is not known yet.
        column_types: as in `parse_column_types`.
    """
    columns = parse_column_types(column_types)
    if columns is None or any(column.get(MAY_NOT_FIT) for column in json.loads(column_types)):
        return False
    if table is None:
        return True
    return key_types(columns).keys() == {column.source_name for column in table.key_columns} and all(
        columns[column.source_name].type == column.type
        for column in table.columns
        if column.source_name in columns
    )


def types_without_columns(database: str) -> str:
    """Return the `column_types` of records that show no columns of their table.

    Args:
        database: the database of the table; empty if it is unknown, or in the name of the table.
    """
    return json.dumps([{DATABASE: database}] if database else [], ensure_ascii=False, separators=(",", ":"))


def database_without_columns(text: str) -> str:
    """Return the database of a text of `types_without_columns`; empty for other texts."""
    try:
        (entry,) = json.loads(text or "[]")
        return str(entry[DATABASE]) if entry.keys() == {DATABASE} else ""
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ""


def database_of(columns: Mapping[str, ObservedColumn]) -> str:
    """Return the database of a table with these columns; empty if they do not state it."""
    return next((column.database for column in columns.values() if column.database), "")


def key_types(columns: Mapping[str, ObservedColumn]) -> Mapping[str, ColumnType]:
    """Return the types of the columns of the primary key."""
    return {name: column.type for name, column in columns.items() if column.is_primary_key}
