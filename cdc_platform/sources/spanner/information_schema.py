"""Queries of the information schema, which both dialects have, each in its own spelling."""

from dataclasses import dataclass
from typing import Final

from cdc_platform.sources.spanner.client.query import STRING, Parameter, Query
from cdc_platform.sources.spanner.spanner_settings import Dialect

STREAM_NAMES: Final = Query("SELECT change_stream_name FROM information_schema.change_streams")
PLACEMENT_OPTIONS: Final = Query(
    "SELECT change_stream_name, option_name, option_value FROM information_schema.change_stream_options "
    "WHERE option_name = 'per_placement_tvf'"
)
ROUTINE_NAMES: Final = Query("SELECT routine_name FROM information_schema.routines")


@dataclass(frozen=True)
class InformationSchema:
    """The queries of one dialect.

    Args:
        all_column: quoted name of the column that states whether a stream watches all tables.
        yes: literal of a flag that is true.
        marker: placeholder of the stream's name in a query.
        parameter: name of the query parameter that the placeholder refers to.
        default_schema: schema whose tables have names without a schema in change records.
        system_schemas: schemas without tables of the user.
    """

    all_column: str
    yes: str
    marker: str
    parameter: str
    default_schema: str
    system_schemas: tuple[str, ...]

    def is_true(self, text: str | None) -> bool:
        """Return whether a flag is true; GoogleSQL's are booleans, PostgreSQL's are YES and NO."""
        return text in ("true", "YES")

    def stream(self, name: str) -> Query:
        """Return the query for whether a stream watches all tables; an unknown stream has no row."""
        return self._of_stream(self.all_column, "change_streams", name)

    def options(self, name: str) -> Query:
        """Return the query for names and values of a stream's options."""
        return self._of_stream("option_name, option_value", "change_stream_options", name)

    def tables(self, name: str) -> Query:
        """Return the query for the tables that a stream names: schema, name, whether with all columns."""
        return self._of_stream("table_schema, table_name, all_columns", "change_stream_tables", name)

    def listed_columns(self, name: str) -> Query:
        """Return the query for the columns that a stream names: schema, table and name."""
        return self._of_stream("table_schema, table_name, column_name", "change_stream_columns", name)

    def all_tables(self) -> Query:
        """Return the query for all tables, in the form of `tables`."""
        return Query(
            f"SELECT table_schema, table_name, {self.yes} FROM information_schema.tables "
            f"WHERE table_type = 'BASE TABLE' AND table_schema NOT IN {self._system_list()}"
        )

    def columns(self) -> Query:
        """Return the query for all columns of tables: schema, table, name, type, generated, and ordinals.

        The last one is the ordinal in the primary key, NULL outside it.
        """
        # The information schema lists the columns of views, too.
        return Query(
            "SELECT c.table_schema, c.table_name, c.column_name, c.spanner_type, c.is_generated, "
            "c.ordinal_position, k.ordinal_position "
            "FROM information_schema.columns AS c JOIN information_schema.tables AS t "
            "ON t.table_schema = c.table_schema AND t.table_name = c.table_name "
            "AND t.table_type = 'BASE TABLE' LEFT JOIN information_schema.index_columns AS k "
            "ON k.table_schema = c.table_schema AND k.table_name = c.table_name "
            "AND k.column_name = c.column_name AND k.index_type = 'PRIMARY_KEY' "
            f"WHERE c.table_schema NOT IN {self._system_list()}"
        )

    def table_name(self, schema: str, table: str) -> str:
        """Return the name by which change records call a table."""
        return table if schema == self.default_schema else f"{schema}.{table}"

    def _of_stream(self, columns: str, view: str, name: str) -> Query:
        return Query(
            f"SELECT {columns} FROM information_schema.{view} "
            f"WHERE change_stream_schema = '{self.default_schema}' AND change_stream_name = {self.marker}",
            {self.parameter: Parameter(STRING, name)},
        )

    def _system_list(self) -> str:
        return "(" + ", ".join(f"'{schema}'" for schema in self.system_schemas) + ")"


INFORMATION_SCHEMAS: Final = {
    Dialect.GOOGLESQL: InformationSchema(
        all_column="`all`",
        yes="true",
        marker="@stream",
        parameter="stream",
        default_schema="",
        system_schemas=("INFORMATION_SCHEMA", "SPANNER_SYS"),
    ),
    Dialect.POSTGRESQL: InformationSchema(
        all_column='"all"',
        yes="'YES'",
        marker="$1",
        parameter="p1",
        default_schema="public",
        system_schemas=("information_schema", "spanner_sys", "pg_catalog"),
    ),
}
