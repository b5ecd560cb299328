"""Reading the published tables of a pipeline, all at one cut: the newest, or a past one.

    from cdc_platform.read import open_tables

    tables = open_tables("examples/my_bank/defs.yaml")
    cut = tables.at()                                # the newest cut
    cut.arrow("accounts")                            # pyarrow.Table, without Spark
    cut.polars("accounts", columns=["id"])           # polars.DataFrame: pip install 'cdc_platform[polars]'
    cut.duckdb().sql("SELECT sum(balance) FROM accounts")         # pip install 'cdc_platform[duckdb]'
    cut.spark(session, "accounts")                   # DataFrame of a session that knows the catalog `lake`
    tables.at(17).names                              # a past cut, by its number
    tables.at(moment="2026-01-31T08:00:00Z")         # the newest cut at or before a commit timestamp

All reads through one cut show the same transactions, even if new cuts are published.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse as parse_filter
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, Table

from cdc_platform import duckdb_views
from cdc_platform.errors import CutNotFound, SettingError, TableNotFound
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import number_of
from cdc_platform.lake.state.cut_states import CutState, cut_state, cut_states, require_readable
from cdc_platform.lake.state.cuts import Cut, find_cut, newest_cut
from cdc_platform.lake.state.quarantine import describe_next_step
from cdc_platform.model.base.declared_settings import micros_of_setting
from cdc_platform.model.base.libraries import optional_library
from cdc_platform.model.base.names import find_table, quote_spark
from cdc_platform.model.base.timestamps import to_datetime, to_rfc3339
from cdc_platform.visible import visible_text

if TYPE_CHECKING:
    import duckdb
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

LOGGER = logging.getLogger(__name__)


def open_tables(where: str | Path | LakeSettings, pipeline: str | None = None) -> "PublishedTables":
    """Return the tables that a pipeline has published; needs neither the source nor Spark.

    Args:
        where: the YAML file that declares the pipeline, or the settings of a lake.
        pipeline: name of the pipeline; required with the settings of a lake, and if the file declares
            several.

    Raises:
        SettingError: the file or a setting cannot be used.
        PipelineNotFound: there is no lake, or it knows no such pipeline.
    """
    if isinstance(where, LakeSettings):
        if pipeline is None:
            raise SettingError("pipeline", "is needed to read from the settings of a lake")
        lake = Lake(where, pipeline, is_reader=True)
    else:
        from cdc_platform.components.loading import load_settings

        settings = load_settings(Path(where), pipeline)
        lake = Lake(settings.lake, settings.name, is_reader=True)
    _ = lake.catalog  # raises here if there is no such lake
    return PublishedTables(lake)


@dataclass(frozen=True)
class PublishedTables:
    """The tables of one pipeline at its published cuts."""

    lake: Lake

    def cuts(self) -> tuple[CutState, ...]:
        """Return all cuts, oldest first, and whether each can still be read and is pinned."""
        return cut_states(self.lake)

    def at(self, cut: int | None = None, *, moment: str | datetime | None = None) -> "TablesAtCut":
        """Return the tables at one cut.

        Args:
            cut: number of a cut; without it, and without a moment, the newest.
            moment: a commit timestamp, RFC 3339 or aware; the newest readable cut at or before it.

        Raises:
            CutNotFound: there is no such cut, or its snapshots have expired.
        """
        found_cut = self._find(cut, _as_micros(moment))
        require_readable(cut_state(self.lake, found_cut))
        return TablesAtCut(self.lake, found_cut)

    def _find(self, number: int | None, moment_micros: int | None) -> Cut:
        if number is not None and moment_micros is not None:
            raise SettingError("moment", "cannot be chosen together with the number of a cut")
        if number is not None:
            return find_cut(self.lake, number)
        if moment_micros is None:
            newest = newest_cut(self.lake)
            if newest is None:
                step = describe_next_step(self.lake)
                raise CutNotFound(f"Pipeline `{self.lake.pipeline}` has not published a cut yet; {step}.")
            return newest
        before = [state for state in cut_states(self.lake) if state.cut.position_micros <= moment_micros]
        if not before:
            raise CutNotFound(
                f"No cut lies at or before this moment: {to_rfc3339(moment_micros)}. Choose a later one; "
                "`cdc-platform cuts DEFS --all` lists the positions."
            )
        readable = [state for state in before if state.is_readable]
        return (readable or before)[-1].cut


@dataclass(frozen=True)
class TablesAtCut:
    """All tables of a pipeline at one source position."""

    lake: Lake
    cut: Cut

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tables and histories, as at the source."""
        return tuple(self.cut.tables)

    @property
    def position(self) -> datetime:
        """Every transaction that was committed at or before it is in the tables, and none after it."""
        return to_datetime(self.cut.position_micros)

    def arrow(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | BooleanExpression | None = None,
    ) -> pa.Table:
        """Return a table's rows.

        Args:
            table: name of the table, as at the source or in the lake.
            columns: columns to read; all when None.
            where: rows to read, in pyiceberg's syntax, such as `balance > 100 and owner = 'Ada'`.

        Raises:
            TableNotFound: the cut has no such table.
            SettingError: `columns` names one that the table does not have at the cut, or `where` cannot be
                read or does not fit its columns.
        """
        name, stored_table = self._find(table)
        scan = _scan_as_then(stored_table, self.cut.tables[name])
        schema = scan.projection()
        fields = _known_columns(schema, table, columns)
        return scan.update(selected_fields=fields, row_filter=_row_filter(schema, table, where)).to_arrow()

    def polars(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | BooleanExpression | None = None,
    ) -> "pl.DataFrame":
        """Return a table's rows as `arrow` does, as a Polars frame.

        Raises:
            TableNotFound: the cut has no such table.
            SettingError: `columns` or `where` cannot be used, as with `arrow`.
            LibraryMissing: Polars is not installed.
        """
        rows = self.arrow(table, columns=columns, where=where)
        frame: pl.DataFrame = optional_library("polars", "polars").from_arrow(rows)
        return frame

    def duckdb(
        self,
        connection: "duckdb.DuckDBPyConnection | None" = None,
        *,
        tables: Sequence[str] | None = None,
    ) -> "duckdb.DuckDBPyConnection":
        """Return a DuckDB connection in which tables of the cut are views, under their names.

        Those that DuckDB, which ignores case, cannot distinguish have the names of the lake only.
        A query reads only the files, columns and rows that it needs. If the lake is in an object store other
        than S3, this call reads the tables into memory, and a warning gives their size; if some are large,
        name only the tables that you need. Keys for S3 come from the catalog, otherwise from where AWS's
        tools find them: the environment, a profile, the machine.

        Args:
            connection: where the views are made; a new database in memory when None.
            tables: names of the tables, as at the source or in the lake; all when None.

        Raises:
            TableNotFound: the cut has no such table.
            LibraryMissing: DuckDB or its Iceberg extension is not installed.
        """
        database = duckdb_views.connect() if connection is None else connection
        duckdb_views.load_extensions(database)
        view_names = duckdb_views.name_views(database, self.names)
        for name, table in map(self._find, self.names if tables is None else tables):
            obstacle = duckdb_views.log_in(database, table.location(), table.io.properties)
            if obstacle is None:
                query = duckdb_views.scan_sql(table.metadata_location, self.cut.tables[name])
                duckdb_views.create_views(database, view_names[name], query)
            else:
                snapshot = table.snapshot_by_id(self.cut.tables[name])
                size_bytes = (number_of(snapshot, "total-files-size") if snapshot is not None else 0) or 0
                LOGGER.warning(
                    "Table `%s` (%.1f MB of files) is read into memory: %s.",
                    visible_text(name),
                    size_bytes / 1e6,
                    visible_text(obstacle),
                )
                duckdb_views.register(database, view_names[name], self.arrow(name))
        return database

    def spark(self, session: "SparkSession", table: str) -> "DataFrame":
        """Return a table as a DataFrame, which Spark reads when an action needs it.

        Args:
            session: one whose catalog `lake` is this lake, such as those that the platform starts.
            table: name of the table, as at the source or in the lake.

        Raises:
            TableNotFound: the cut has no such table.
        """
        name, _ = self._find(table)
        reader = session.read.option("versionAsOf", str(self.cut.tables[name]))
        return reader.table(self.lake.spark_table(name))

    def _find(self, table: str) -> tuple[str, Table]:
        """Return the source's name of a table, and the table."""
        name = find_table(table, self.names)
        stored_table = self.lake.table(name) if name is not None else None
        if name is None or stored_table is None:
            names = ", ".join(self.names)
            raise TableNotFound(f"Cut {self.cut.cut} has no table {quote_spark(table)}. It has: {names}")
        return name, stored_table


def _scan_as_then(table: Table, snapshot_id: int) -> DataScan:
    """Return the scan of a snapshot, with the columns that the table had at that time.

    By default, pyiceberg looks up the columns of a filter in the current schema: it would not find a column
    that was renamed since, or would use another one that now has the name.
    """
    scan = table.scan(snapshot_id=snapshot_id)
    then = table.metadata.model_copy(update={"current_schema_id": scan.projection().schema_id})
    return scan.update(table_metadata=then)


def _known_columns(schema: Schema, table: str, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns to read, all of which the table has."""
    names = {*schema.column_names, "*"}
    for column in columns or ():
        if column not in names:
            raise SettingError(
                "columns", f"must name columns of `{table}` ({_names(schema)}), and not: {column}"
            )
    return tuple(columns or ("*",))


def _row_filter(schema: Schema, table: str, where: str | BooleanExpression | None) -> BooleanExpression:
    """Return the filter of the rows to read, which fits the columns."""
    if where is None:
        return AlwaysTrue()
    try:
        rows = parse_filter(where) if isinstance(where, str) else where
    except Exception as error:
        # The parser depends on nothing but the text, so any exception is about the text.
        raise SettingError(
            "where", f"must be a condition such as `balance > 100 and owner like 'A%'`, and not: {where}"
        ) from error
    try:
        bind(schema, rows, case_sensitive=True)
    except (ValueError, TypeError) as error:
        raise SettingError(
            "where", f"does not fit the columns of `{table}` ({_names(schema)}): {where} ({error})"
        ) from error
    return rows


def _names(schema: Schema) -> str:
    return ", ".join(f"{field.name} {field.field_type}" for field in schema.fields)


def _as_micros(moment: str | datetime | None) -> int | None:
    if moment is None:
        return None
    return micros_of_setting("moment", moment if isinstance(moment, str) else moment.isoformat())
