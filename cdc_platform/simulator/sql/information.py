"""The information schema, answered by SQLite for any query in either dialect."""

import sqlite3
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.simulator.history.schema import Schema, SimColumn, SimTable
from cdc_platform.simulator.sql.read_only import answer, read_only
from cdc_platform.simulator.sql.sql import read_function
from cdc_platform.simulator.sql.tokens import tokens_of
from cdc_platform.simulator.sql.translation import to_sqlite
from cdc_platform.simulator.wire.simulator_settings import (
    DAY_S,
    RETENTION_S,
    Dialect,
    PartitionMode,
    SimulatorSettings,
)
from cdc_platform.simulator.wire.values import BOOL, BYTES, FLOAT64, INT64, STRING, spanner_type

_TABLES: Final = {
    "change_streams": ("change_stream_catalog", "change_stream_schema", "change_stream_name", "all"),
    "change_stream_options": (
        *("change_stream_catalog", "change_stream_schema", "change_stream_name"),
        *("option_name", "option_type", "option_value"),
    ),
    "change_stream_tables": (
        *("change_stream_catalog", "change_stream_schema", "change_stream_name"),
        *("table_catalog", "table_schema", "table_name", "all_columns"),
    ),
    "change_stream_columns": (
        *("change_stream_catalog", "change_stream_schema", "change_stream_name"),
        *("table_catalog", "table_schema", "table_name", "column_name"),
    ),
    "routines": (
        *("specific_catalog", "specific_schema", "specific_name"),
        *("routine_catalog", "routine_schema", "routine_name", "routine_type"),
    ),
    "database_options": ("catalog_name", "schema_name", "option_name", "option_type", "option_value"),
    "schemata": ("catalog_name", "schema_name"),
    "tables": (
        *("table_catalog", "table_schema", "table_name", "parent_table_name", "on_delete_action"),
        *("table_type", "spanner_state", "interleave_type", "row_deletion_policy_expression"),
    ),
    "columns": (
        *("table_catalog", "table_schema", "table_name", "column_name", "ordinal_position"),
        *("column_default", "data_type", "is_nullable", "spanner_type", "is_generated"),
        *("generation_expression", "is_stored", "spanner_state", "is_identity"),
    ),
    "index_columns": (
        *("table_catalog", "table_schema", "table_name", "index_name", "index_type", "column_name"),
        *("ordinal_position", "column_ordering", "is_nullable", "spanner_type"),
    ),
    "indexes": (
        *("table_catalog", "table_schema", "table_name", "index_name", "index_type"),
        *("parent_table_name", "is_unique", "is_null_filtered", "index_state", "spanner_is_managed"),
    ),
    "key_column_usage": (
        *("constraint_catalog", "constraint_schema", "constraint_name", "table_catalog", "table_schema"),
        *("table_name", "column_name", "ordinal_position"),
    ),
    "table_constraints": (
        *("constraint_catalog", "constraint_schema", "constraint_name", "table_catalog", "table_schema"),
        *("table_name", "constraint_type"),
    ),
}
"""Tables and their columns, without those that readers of change streams do not use."""

# SQLite has no boolean values: these texts represent them, and no other text equals them.
_TRUE, _FALSE = "\x01true", "\x01false"
_TRUTHS: Final = {"TRUE": "(char(1) || 'true')", "FALSE": "(char(1) || 'false')"}


def asks_information(sql: str, dialect: Dialect) -> bool:
    """Return whether a query reads the information schema."""
    return any(
        token.is_identifier and token.value.lower() == "information_schema" and following.is_mark(".")
        for token, following in pairwise(tokens_of(sql, dialect))
    )


class Information:
    """The information schema of the simulated database."""

    def __init__(self, settings: SimulatorSettings) -> None:
        self._settings = settings
        self._is_googlesql = settings.dialect is Dialect.GOOGLESQL
        self._schema_name = "" if self._is_googlesql else "public"

    def answer(
        self, sql: str, parameters: Mapping[str, Any], schema: Schema
    ) -> tuple[list[tuple[str, ColumnType]], list[tuple[Any, ...]]]:
        """Return names and types of the columns, and the rows, of a query.

        Raises:
            sqlite3.Error: the query is invalid, or reads something that does not exist.
            Refusal: its parameters are not bound correctly, or it takes too much work.
        """
        connection = sqlite3.connect(":memory:")
        try:
            self._fill(connection, schema)
            query = to_sqlite(sql, parameters, self._settings.dialect, _TRUTHS)
            names, rows = answer(read_only(connection), query)
        finally:
            connection.close()
        types = [(name, type_of(row[position] for row in rows)) for position, name in enumerate(names)]
        return types, [tuple({_TRUE: True, _FALSE: False}.get(value, value) for value in row) for row in rows]

    def _fill(self, connection: sqlite3.Connection, schema: Schema) -> None:
        connection.execute("ATTACH ':memory:' AS information_schema")
        for name, columns in _TABLES.items():
            names = ", ".join(f'"{column}"' for column in columns)
            connection.execute(f"CREATE TABLE information_schema.{name} ({names})")
        for name, fields in self._rows(schema):
            names = ", ".join(f'"{column}"' for column in fields)
            marks = ", ".join("?" * len(fields))
            connection.execute(
                f"INSERT INTO information_schema.{name} ({names}) VALUES ({marks})",
                list(fields.values()),
            )

    def _rows(self, schema: Schema) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "schemata", {"catalog_name": "", "schema_name": self._schema_name}
        dialect = "GOOGLE_STANDARD_SQL" if self._is_googlesql else "POSTGRESQL"
        option = {"option_name": "database_dialect", "option_type": self._text, "option_value": dialect}
        yield "database_options", {"catalog_name": "", "schema_name": self._schema_name, **option}
        stream = {
            "change_stream_catalog": "",
            "change_stream_schema": self._schema_name,
            "change_stream_name": self._settings.change_stream,
        }
        yield "change_streams", {**stream, "all": self._flag(schema.watches_all)}
        for name, value in self._options(schema).items():
            option = {"option_name": name, "option_type": self._text, "option_value": value}
            yield "change_stream_options", {**stream, **option}
        for placement in schema.placements or ("",):
            yield "routines", self._routine(read_function(self._settings, placement))
        for table in schema.tables.values():
            yield from self._table_rows(table)
            if table.is_watched and not schema.watches_all:
                yield from self._watched_rows(stream, table)

    def _routine(self, name: str) -> dict[str, Any]:
        schema = "" if self._is_googlesql else "spanner"
        kind = "TABLE FUNCTION" if self._is_googlesql else "FUNCTION"
        names = {
            f"{of}_{part}": value
            for of in ("specific", "routine")
            for part, value in (("catalog", ""), ("schema", schema), ("name", name))
        }
        return {**names, "routine_type": kind}

    def _watched_rows(
        self, stream: Mapping[str, Any], table: SimTable
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the change stream's entries for a table; one that watches all tables has none."""
        names = {**stream, **self._name(table)}
        yield "change_stream_tables", {**names, "all_columns": self._flag(table.listed is None)}
        for column in sorted(table.listed or ()):
            yield "change_stream_columns", {**names, "column_name": column}

    def _name(self, table: SimTable) -> dict[str, Any]:
        return {"table_catalog": "", "table_schema": self._schema_name, "table_name": table.name}

    def _flag(self, is_true: bool) -> str:
        return (_FALSE, _TRUE)[is_true] if self._is_googlesql else ("NO", "YES")[is_true]

    def _options(self, schema: Schema) -> dict[str, str]:
        options = {"value_capture_type": schema.capture.value}
        if self._settings.partition_mode is not PartitionMode.IMMUTABLE_KEY_RANGE:
            options["partition_mode"] = self._settings.partition_mode.value
        if schema.placements:
            options["per_placement_tvf"] = "true"
        retention_s = self._settings.retention_s
        if retention_s != RETENTION_S:
            days, rest = divmod(retention_s, DAY_S)
            options["retention_period"] = f"{retention_s}s" if rest else f"{days}d"
        return options

    def _table_rows(self, table: SimTable) -> Iterator[tuple[str, dict[str, Any]]]:
        where = self._name(table)
        kind = {"table_type": "BASE TABLE", "spanner_state": "COMMITTED", "interleave_type": "IN PARENT"}
        yield "tables", {**where, **kind}
        index = {"index_name": "PRIMARY_KEY", "index_type": "PRIMARY_KEY"}
        flags = {"is_unique": self._flag(True), "is_null_filtered": self._flag(False)}
        yield "indexes", {**where, **index, **flags}
        constraint = {"constraint_catalog": "", "constraint_schema": self._schema_name}
        constraint["constraint_name"] = f"PK_{table.name}"
        yield "table_constraints", {**constraint, **where, "constraint_type": "PRIMARY KEY"}
        for ordinal, column in enumerate(table.columns, start=1):
            about = {"column_name": column.name, **self._column(column)}
            states = {"is_generated": "NEVER", "spanner_state": "COMMITTED", "is_identity": "NO"}
            yield "columns", {**where, **about, **states, "ordinal_position": ordinal}
            if column.is_primary_key:
                about.pop("data_type")
                order = {"ordinal_position": ordinal, "column_ordering": "ASC"}
                yield "index_columns", {**where, **index, **about, **order}
                usage = {"column_name": column.name, "ordinal_position": ordinal}
                yield "key_column_usage", {**constraint, **where, **usage}

    def _column(self, column: SimColumn) -> dict[str, Any]:
        spanner = spanner_type(column.type, self._settings.dialect)
        data_type = None
        if not self._is_googlesql:
            data_type = "ARRAY" if column.type.element is not None else spanner
        nullable = "NO" if column.is_required else "YES"
        return {"data_type": data_type, "is_nullable": nullable, "spanner_type": spanner}

    @property
    def _text(self) -> str:
        return "STRING" if self._is_googlesql else "character varying"


def type_of(values: Iterator[Any]) -> ColumnType:
    """Return the type of values from SQLite."""
    example = next((value for value in values if value is not None), "")
    if example in (_TRUE, _FALSE):
        return BOOL
    return {int: INT64, float: FLOAT64, bytes: BYTES}.get(type(example), STRING)
