"""Changes of the source's schema, recorded one by one, each upon the history with those before."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from cdc_platform.model.schema.column_versions import ColumnVersion
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.observed_columns import ObservedColumn
from cdc_platform.model.schema.schema_events import SchemaChange, SchemaEvent
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import TableSchema


@dataclass
class SchemaRecorder:
    """Records changes of one cycle.

    Args:
        history: what is known, with the changes recorded so far.
        cycle: cycle of the log that the changes belong to.
        events: the changes, in order.
    """

    history: SchemaHistory
    cycle: int
    events: list[SchemaEvent] = field(default_factory=list, init=False)

    def drop(self, table: str, version: ColumnVersion, micros: int) -> None:
        """Record that a version of a column is gone."""
        before = version.type.to_json()
        self.tell(SchemaChange.COLUMN_DROPPED, table, version.name, None, before, since=micros)

    def drop_columns(
        self,
        table: str,
        columns: Mapping[str, ObservedColumn],
        missed: Mapping[str, int],
        schema_read: SchemaRead,
    ) -> None:
        """Record the columns that a schema read certainly lacks."""
        for version in self.history.tables[table].live_versions:
            if version.name in columns:
                continue
            if schema_read.is_exact or version.name in missed:
                self.drop(table, version, missed.get(version.name, schema_read.micros))

    def place(self, schema: TableSchema) -> None:
        """Record where the columns stand, if elsewhere than before."""
        places = {column.name: column.ordinal for column in schema.value_columns}
        if places != self.history.tables[schema.name].places:
            self.tell(SchemaChange.COLUMNS_PLACED, schema.name, None, json.dumps(places))

    def order_key(self, schema: TableSchema, micros: int) -> None:
        """Take the order of a key from the source: records number its columns by their places."""
        before = [column.name for column in self.history.tables[schema.name].schema.key_columns]
        now = [column.name for column in schema.key_columns]
        if now != before and set(now) == set(before):
            since = None if self.history.cycle == 0 else micros
            self.tell(SchemaChange.KEY_ORDERED, schema.name, None, json.dumps(now), since=since)

    def drop_tables(self, schema_read: SchemaRead) -> None:
        """Record the tables that a schema read lacks: dropped, or no longer watched."""
        watched = {schema.name for schema in schema_read.tables}
        for name, columns in sorted(self.history.tables.items()):
            if columns.is_watched and name not in watched:
                exists = name in schema_read.unwatched
                change = SchemaChange.TABLE_UNWATCHED if exists else SchemaChange.TABLE_DROPPED
                self.tell(change, name, since=schema_read.micros)

    def name_tables(
        self, change: SchemaChange, before: Collection[str], now: Collection[str], since: int | None
    ) -> None:
        """Record the names of tables that are not read, if they are others than before."""
        if set(now) != set(before):
            value, previous = (json.dumps(sorted(names)) for names in (now, before))
            self.tell(change, None, None, value, previous, since=since)

    def record_unwatched(self, table: str, names: Iterable[str], since: int | None) -> None:
        """Record the columns of a table that are not watched."""
        before = self.history.tables[table].unwatched
        self.record_columns(SchemaChange.UNWATCHED_COLUMNS, table, before, tuple(sorted(names)), since)

    def record_columns(
        self,
        change: SchemaChange,
        table: str,
        before: tuple[str, ...],
        now: tuple[str, ...],
        since: int | None,
    ) -> None:
        """Record the names of columns of a kind, if they are others than before."""
        if now != before:
            value, previous = (json.dumps(listed) if listed else None for listed in (now, before))
            self.tell(change, table, None, value, previous, since=since)

    def set_options(self, schema_read: SchemaRead, *, is_first: bool) -> None:
        """Record the options that differ from those before."""
        before = self.history.options
        for name in sorted(before.keys() | schema_read.options.keys()):
            value, previous = schema_read.options.get(name), before.get(name)
            if value != previous:
                since = None if is_first else schema_read.micros
                self.tell(SchemaChange.OPTION_SET, None, name, value, previous, since=since)

    def tell_column(
        self,
        change: SchemaChange,
        table: str,
        name: str,
        column: ObservedColumn,
        since: int | None,
        version: ColumnVersion | None = None,
    ) -> None:
        """Tell of a column that has come up, or taken the place of another version."""
        previous = version.type.to_json() if version is not None else None
        self._add_event(
            SchemaEvent(
                self.cycle,
                change,
                table,
                name,
                column.type.to_json(),
                previous,
                column.is_primary_key,
                column.ordinal,
                since,
            )
        )

    def tell(
        self,
        change: SchemaChange,
        table: str | None,
        name: str | None = None,
        value: str | None = None,
        previous: str | None = None,
        *,
        since: int | None = None,
    ) -> None:
        """Record a change of what `SchemaEvent` describes, which holds from a moment on."""
        self._add_event(SchemaEvent(self.cycle, change, table, name, value, previous, since_micros=since))

    def _add_event(self, event: SchemaEvent) -> None:
        self.events.append(event)
        self.history = self.history.after(event)
