"""Recorder of changes of the source's schema: each change extends the history that the next one sees."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from cdc_platform.errors import SettingError
from cdc_platform.model.base.timestamps import OrderPlace
from cdc_platform.model.schema.column_versions import ColumnVersion
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.observed_columns import ObservedColumn
from cdc_platform.model.schema.schema_events import SchemaChange, SchemaEvent
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import TableSchema


def check_setting(table: str, version: ColumnVersion, column: ObservedColumn) -> None:
    """Ensure that the source, and not a setting, has changed the type of a column.

    Raises:
        SettingError: `nanosecond_columns` was changed for a column of the lake.
    """
    if version.type.with_nanoseconds() == column.type.with_nanoseconds():
        verb = "must still name" if version.type.keeps_nanoseconds else "must not name"
        problem = f"{verb} `{table}.{version.name}`, whose type is fixed once the lake has the column"
        raise SettingError("nanosecond_columns", f"{problem}: begin a pipeline with another `name` instead")


@dataclass
class SchemaRecorder:
    """Records changes of one cycle.

    Args:
        history: the schema history, including the changes recorded so far.
        cycle: the cycle of the log in which the changes are recorded.
        events: the changes, in order.
    """

    history: SchemaHistory
    cycle: int
    events: list[SchemaEvent] = field(default_factory=list, init=False)

    def drop(self, table: str, version: ColumnVersion, since: OrderPlace) -> None:
        """Record that a version of a column was dropped."""
        before = version.type.to_json()
        self.record(SchemaChange.COLUMN_DROPPED, table, version.name, None, before, since=since)

    def drop_columns(
        self,
        table: str,
        columns: Mapping[str, ObservedColumn],
        missed: Mapping[str, OrderPlace],
        schema_read: SchemaRead,
    ) -> None:
        """Record the columns that a schema read certainly lacks."""
        for version in self.history.tables[table].live_versions:
            if version.name in columns:
                continue
            if schema_read.is_exact or version.name in missed:
                self.drop(table, version, missed.get(version.name, schema_read.place))

    def place(self, schema: TableSchema) -> None:
        """Record the ordinals of the columns if they changed."""
        places = {column.name: column.ordinal for column in schema.value_columns}
        if places != self.history.tables[schema.name].places:
            self.record(SchemaChange.COLUMNS_PLACED, schema.name, None, json.dumps(places))

    def record_key_order(self, schema: TableSchema, place: OrderPlace) -> None:
        """Record a changed order of the key's columns, which records number by their places in the table."""
        before = [column.name for column in self.history.tables[schema.name].schema.key_columns]
        names = [column.name for column in schema.key_columns]
        if names != before and set(names) == set(before):
            since = None if self.history.cycle == 0 else place
            self.record(SchemaChange.KEY_ORDERED, schema.name, None, json.dumps(names), since=since)

    def drop_tables(self, schema_read: SchemaRead) -> None:
        """Record the tables that a schema read lacks: dropped, or no longer watched."""
        watched_names = {schema.name for schema in schema_read.tables}
        for name, columns in sorted(self.history.tables.items()):
            if columns.is_watched and name not in watched_names:
                exists = name in schema_read.unwatched
                change = SchemaChange.TABLE_UNWATCHED if exists else SchemaChange.TABLE_DROPPED
                self.record(change, name, since=schema_read.place)

    def name_tables(
        self, change: SchemaChange, before: Collection[str], now: Collection[str], since: OrderPlace | None
    ) -> None:
        """Record the names of tables that are not read, if they changed."""
        if set(now) != set(before):
            value, previous = (json.dumps(sorted(names)) for names in (now, before))
            self.record(change, None, None, value, previous, since=since)

    def record_unwatched(self, table: str, names: Iterable[str], since: OrderPlace | None) -> None:
        """Record the columns of a table that are not watched."""
        before = self.history.tables[table].unwatched
        self.record_columns(SchemaChange.UNWATCHED_COLUMNS, table, before, tuple(sorted(names)), since)

    def record_columns(
        self,
        change: SchemaChange,
        table: str,
        before: tuple[str, ...],
        now: tuple[str, ...],
        since: OrderPlace | None,
    ) -> None:
        """Record the names of columns of a kind, if they changed."""
        if now != before:
            value, previous = (json.dumps(names) if names else None for names in (now, before))
            self.record(change, table, None, value, previous, since=since)

    def set_options(self, schema_read: SchemaRead, *, is_first: bool) -> None:
        """Record the options whose values changed."""
        before = self.history.options
        for name in sorted(before.keys() | schema_read.options.keys()):
            value, previous = schema_read.options.get(name), before.get(name)
            if value != previous:
                since = None if is_first else schema_read.place
                self.record(SchemaChange.OPTION_SET, None, name, value, previous, since=since)

    def record_version(
        self,
        change: SchemaChange,
        table: str,
        name: str,
        column: ObservedColumn,
        since: OrderPlace | None,
        version: ColumnVersion | None = None,
    ) -> None:
        """Record a new column, or a version of a column that replaces another version."""
        previous = version.type.to_json() if version is not None else None
        of_column = column.type.to_json(), previous, column.is_primary_key, column.ordinal
        self._append(SchemaEvent(self.cycle, change, table, name, *of_column), since)

    def record(
        self,
        change: SchemaChange,
        table: str | None,
        name: str | None = None,
        value: str | None = None,
        previous: str | None = None,
        *,
        since: OrderPlace | None = None,
    ) -> None:
        """Record a change with the fields of `SchemaEvent`; it takes effect at ``since``."""
        self._append(SchemaEvent(self.cycle, change, table, name, value, previous), since)

    def _append(self, event: SchemaEvent, since: OrderPlace | None) -> None:
        if since is not None:
            micros, order = since
            event = replace(event, since_micros=micros, since_order=order)
        self.events.append(event)
        self.history = self.history.after(event)
