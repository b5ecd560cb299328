"""Options of a table for its history and for soft deletes, and the columns that they add."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Final

from cdc_platform.model.base.declared_settings import Described
from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema

VALID_FROM: Final = "valid_from"
"""Commit timestamp of the transaction that made a version."""
VALID_TO: Final = "valid_to"
"""Commit timestamp of the transaction that ended it, exclusive; NULL while it is current."""
IS_CURRENT: Final = "is_current"
TRANSACTION_ID: Final = "transaction_id"
"""The transaction that made a version."""

DELETED: Final = "__deleted"
DELETED_AT: Final = "__deleted_at"
"""Commit timestamp of the transaction that deleted the row; NULL while it lives."""

ORDERING_KEY: Final = "__ordering_key"
"""Ordering key of the newest change of a row, if changes may arrive out of order."""

_HISTORY_TYPES: Final = {
    VALID_FROM: "TIMESTAMP",
    VALID_TO: "TIMESTAMP",
    IS_CURRENT: "BOOL",
    TRANSACTION_ID: "STRING",
}
_SOFT_DELETE_TYPES: Final = {DELETED: "BOOL", DELETED_AT: "TIMESTAMP"}
_ORDER_TYPES: Final = {ORDERING_KEY: "STRING"}
_ADDED: Final = frozenset({*_SOFT_DELETE_TYPES, *_ORDER_TYPES})
_HISTORY_SUFFIX: Final = "__history"
_SOURCE_SUFFIX: Final = "__source"
_TAKEN_IN_HISTORY: Final = re.compile(rf"({'|'.join(_HISTORY_TYPES)})({_SOURCE_SUFFIX})*", re.IGNORECASE)


@dataclass(frozen=True)
class TableOptions:
    """Options that keep more of a table than its current rows."""

    history: Annotated[
        bool,
        Described("Whether every version of every row is kept in a table TABLE__history (SCD type 2)."),
    ] = False
    soft_delete: Annotated[
        bool,
        Described(
            "Whether deleted rows stay in the table, with `__deleted` true and the time in `__deleted_at`."
        ),
    ] = False
    keeps_order: bool = False
    """Whether `__ordering_key` stores the key of each row's newest change: an older one may still arrive."""


PLAIN: Final = TableOptions()


def history_name(table: str) -> str:
    """Return the name of a table's history."""
    return f"{table}{_HISTORY_SUFFIX}"


def without_histories(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a lake's tables without the histories of other tables among them."""
    tables = tuple(names)
    histories = {history_name(name) for name in tables}
    return tuple(name for name in tables if name not in histories)


def name_in_history(column: str) -> str:
    """Return the name of a table's column in the table's history, with a suffix if the name is taken there.

    The table's `valid_to` becomes `valid_to__source`, and its `valid_to__source` gets a second suffix.
    """
    return column if _TAKEN_IN_HISTORY.fullmatch(column) is None else f"{column}{_SOURCE_SUFFIX}"


def columns_in_history(table: ColumnHistory) -> ColumnHistory:
    """Return the columns of a table under their names in the table's history."""
    return table.with_names(name_in_history)


def history_schema(table: TableSchema) -> TableSchema:
    """Return the columns of a history; it has no key, because each row is a version.

    Args:
        table: the table's columns, under their names in the history.
    """
    columns = tuple(replace(column, is_primary_key=False) for column in table.columns)
    return TableSchema(history_name(table.name), columns + _extra_columns(_HISTORY_TYPES, len(columns)))


def stored_schema(table: TableSchema, options: TableOptions) -> TableSchema:
    """Return the columns of a source table's table in the lake."""
    types = {
        **(_SOFT_DELETE_TYPES if options.soft_delete else {}),
        **(_ORDER_TYPES if options.keeps_order else {}),
    }
    return replace(table, columns=table.columns + _extra_columns(types, len(table.columns)))


def source_schema(schema: TableSchema) -> TableSchema:
    """Return the columns of a table of the lake that come from the source."""
    return replace(schema, columns=tuple(column for column in schema.columns if column.name not in _ADDED))


def keeps_deleted(schema: TableSchema) -> bool:
    """Return whether a table of the lake keeps deleted rows."""
    return any(column.name == DELETED for column in schema.columns)


def keeps_order(schema: TableSchema) -> bool:
    """Return whether a table of the lake stores the ordering key of each row's newest change."""
    return any(column.name == ORDERING_KEY for column in schema.columns)


def _extra_columns(types: dict[str, str], before: int) -> tuple[Column, ...]:
    return tuple(
        Column(name, ColumnType(code), is_primary_key=False, ordinal=before + number)
        for number, (name, code) in enumerate(types.items(), start=1)
    )
