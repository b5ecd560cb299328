"""Detection of schema changes from the columns of records and from schema reads."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from cdc_platform.model.base.names import case_key
from cdc_platform.model.base.timestamps import OrderPlace
from cdc_platform.model.schema.column_versions import ColumnHistory, ColumnVersion
from cdc_platform.model.schema.evolution import SchemaHistory, same_type
from cdc_platform.model.schema.observed_columns import ObservedColumn, ObservedColumns, key_types
from cdc_platform.model.schema.recreated_tables import (
    RecreatedColumn,
    find_recreated,
    has_other_key,
    shows_creation,
)
from cdc_platform.model.schema.schema_events import CREATED, UNCOPIED, SchemaChange, SchemaEvent
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.schema_recorder import SchemaRecorder, check_setting
from cdc_platform.model.schema.widening import joined_type, keeps_values


def is_news(
    history: SchemaHistory,
    table: str,
    columns: Mapping[str, ObservedColumn],
    *,
    is_whole: bool,
    widens: bool = False,
) -> bool:
    """Return whether records with these columns may show a change; most do not, and need no further work.

    With ``widens``, records come in no order: see `find_events`.
    """
    known_columns = history.tables.get(table)
    if known_columns is None or not known_columns.is_watched:
        return True
    if not widens and has_other_key(known_columns, key_types(columns)):
        return True
    differs = _is_wider if widens else _differs
    if any(differs(known_columns.live(name), column) for name, column in columns.items()):
        return True
    return (
        is_whole
        and not widens
        and any(version.name not in columns for version in known_columns.live_versions)
    )


def _differs(version: ColumnVersion | None, column: ObservedColumn) -> bool:
    return version is None or not same_type(version.type, column.type)


def _is_wider(version: ColumnVersion | None, column: ObservedColumn) -> bool:
    return version is None or not same_type(version.type, joined_type(version.type, column.type))


def find_events(
    history: SchemaHistory,
    cycle: int,
    observations: Mapping[str, Iterable[ObservedColumns]],
    schema_read: SchemaRead | None,
    *,
    read_back: Callable[[int], SchemaRead] | None = None,
    widens: bool = False,
) -> tuple[SchemaEvent, ...]:
    """Return the schema changes since a history, in order.

    Args:
        history: the schema history so far.
        cycle: the cycle of the log that the observations belong to.
        observations: per table, in commit order.
        schema_read: the source's schema at the log's position; None if it was not read.
        read_back: reads the source's schema at an earlier moment. If a whole row certainly lacks a column,
            it shows whether the column was dropped or not watched; without it, the absence is ambiguous.
        widens: whether records come in no order, so that an older shape may follow a newer one. A column
            then has the narrowest type that holds all observed values, and a missing column stays.
    """
    sees_creation = shows_creation(history, schema_read, read_back)
    recreations = {} if widens else dict(find_recreated(history, schema_read))
    # A schema read of files or topics is empty: their keys may change, and the source does not state how it
    # converted the values of a retyped column.
    is_read = schema_read is None or schema_read.is_exact or bool(schema_read.tables)
    fixes_keys = not widens and schema_read is not None and is_read
    finder = _Finder(
        history,
        cycle,
        before=history,
        shows_creation=sees_creation,
        widens=widens,
        fixes_keys=fixes_keys,
        converts=is_read,
        read_back=read_back,
        recreated=recreations,
        populated=schema_read.populated if schema_read is not None else frozenset(),
        uncopied=schema_read.uncopied if schema_read is not None else frozenset(),
    )
    for table in sorted(observations):
        for observation in observations[table]:
            finder.see(table, observation)
    if schema_read is not None:
        finder.take_read(schema_read)
    return tuple(finder.events)


@dataclass
class _Finder(SchemaRecorder):
    before: SchemaHistory = field(kw_only=True)
    shows_creation: bool = field(kw_only=True)
    widens: bool = False
    fixes_keys: bool = False
    converts: bool = True
    read_back: Callable[[int], SchemaRead] | None = None
    recreated: dict[tuple[str, str], RecreatedColumn] = field(default_factory=dict)
    """Columns that a schema read shows to be recreated, and no record has shown yet."""
    populated: frozenset[str] = frozenset()
    """Tables that may have had rows when they came up."""
    uncopied: frozenset[str] = frozenset()
    """Tables that may have had rows before that no copy brings."""
    fresh: dict[str, bool] = field(default_factory=dict)
    """Tables that came up in this window, each with whether a whole row of it was seen."""
    missed: dict[tuple[str, str], OrderPlace] = field(default_factory=dict)
    """Columns that later whole rows lack, each with the time of the first of these rows."""
    removed: set[tuple[str, str]] = field(default_factory=set)
    """The missed columns that were certainly dropped, or are no longer watched."""
    unwatched: set[tuple[str, str]] = field(default_factory=set)
    """The removed columns that still existed at the source."""
    whole_at: dict[str, OrderPlace] = field(default_factory=dict)
    """When a whole row, or a copy, of each table was last seen in this window."""

    def see(self, table: str, observation: ObservedColumns, *, may_retype: bool = True) -> None:
        is_recreated = self._is_recreated_table(table, observation)
        if is_recreated and not may_retype:
            # It is a later table; records that are still to come show when it was created.
            return
        table_columns = (
            self._recreate(table, observation) if is_recreated else self._watch(table, observation)
        )
        for name, column in observation.columns.items():
            version = table_columns.live(name)
            if version is None:
                self._add(table, name, column, observation.place)
            elif self.widens:
                self._widen(table, version, column, observation.place)
            elif self._is_recreated(table, name, observation.columns) or self._joins_key(version, column):
                self._renew(table, version, column, observation.place)
            elif _differs(version, column) and may_retype:
                self._retype(table, version, column, observation.place)
            self.missed.pop((table, name), None)
            for names in (self.removed, self.unwatched):
                names.discard((table, name))
        if observation.is_whole:
            self._miss(table, observation)

    def _is_recreated_table(self, table: str, observation: ObservedColumns) -> bool:
        columns = self.history.tables.get(table)
        return (
            self.fixes_keys and columns is not None and has_other_key(columns, key_types(observation.columns))
        )

    def _recreate(self, table: str, observation: ObservedColumns) -> ColumnHistory:
        """Record that a table was recreated, and drop the key columns that it no longer has."""
        was_dropped = self.history.tables[table].is_dropped
        columns = self._watch(table, observation)
        if not was_dropped:
            self.record(SchemaChange.TABLE_DROPPED, table, since=observation.place)
            columns = self._watch(table, observation)
        for version in columns.live_versions:
            if version.is_primary_key and version.name not in observation.columns:
                self.drop(table, version, observation.place)
        return self.history.tables[table]

    def _joins_key(self, version: ColumnVersion, column: ObservedColumn) -> bool:
        """Return whether a column joined or left the key, which only a recreated table can show."""
        return self.fixes_keys and version.is_primary_key != column.is_primary_key

    def _miss(self, table: str, observation: ObservedColumns) -> None:
        """Note the columns that a whole row lacks."""
        if table in self.fresh:
            self.fresh[table] = True
        self.whole_at[table] = observation.place
        for version in self.history.tables[table].live_versions:
            if version.name not in observation.columns:
                self.missed.setdefault((table, version.name), observation.place)
                if observation.is_sure and (table, version.name) not in self.removed:
                    self._ask_why(table, version.name, observation.place)

    def _ask_why(self, table: str, name: str, place: OrderPlace) -> None:
        """Ask the source whether a column that a row lacks was dropped or not watched."""
        schema_read = self._read_back(place)
        if schema_read is not None:
            self.removed.add((table, name))
            if name in schema_read.unwatched.get(table, ()):
                self.unwatched.add((table, name))

    def _read_back(self, place: OrderPlace) -> SchemaRead | None:
        schema_read = self.read_back(place[0]) if self.read_back is not None and not self.widens else None
        return schema_read if schema_read is not None and schema_read.is_exact else None

    def _find_unwatched(self, table: str, name: str) -> None:
        """Ask the source whether a new column existed before and was just not watched."""
        place = self.whole_at.get(table)
        schema_read = self._read_back(place) if place is not None else None
        names = self.history.tables[table].unwatched
        if schema_read is not None and name not in names and name in schema_read.unwatched.get(table, ()):
            self.record_unwatched(table, (*names, name), place)

    def take_read(self, schema_read: SchemaRead) -> None:
        is_first = self.history.cycle == 0
        for schema in schema_read.tables:
            observation = ObservedColumns.of_table(schema_read.micros, schema, is_whole=False)
            missed_columns = {name: at for (table, name), at in self.missed.items() if table == schema.name}
            self.removed |= self.recreated.keys()
            self.see(schema.name, observation, may_retype=schema_read.is_exact)
            self.drop_columns(schema.name, observation.columns, missed_columns, schema_read)
            since = None if is_first else schema_read.place
            self.record_unwatched(schema.name, schema_read.unwatched.get(schema.name, ()), since)
            before = self.history.tables[schema.name].generated
            generated_columns = tuple(sorted(schema_read.generated.get(schema.name, ())))
            self.record_columns(SchemaChange.GENERATED_COLUMNS, schema.name, before, generated_columns, since)
            if not self.widens:
                # An inexact schema read shows the present ordinals, not those of its moment.
                self.place(schema if schema_read.is_exact else replace(schema, columns=schema.key_columns))
                self.record_key_order(schema, schema_read.place)
        if schema_read.is_exact:
            self.drop_tables(schema_read)
            unwatched_tables = schema_read.unwatched.keys() - {
                *schema_read.keyless,
                *(schema.name for schema in schema_read.tables),
            }
            since = None if is_first else schema_read.place
            self.name_tables(SchemaChange.OTHER_TABLES, self.history.other_names, unwatched_tables, since)
            self.name_tables(SchemaChange.KEYLESS_TABLES, self.history.keyless, schema_read.keyless, since)
        self.set_options(schema_read, is_first=is_first)

    def _watch(self, table: str, observation: ObservedColumns) -> ColumnHistory:
        columns = self.history.tables.get(table)
        if columns is None or not columns.is_watched:
            is_beginning = self.history.cycle == 0 and columns is None
            since = None if is_beginning else observation.place
            is_new = columns is None and table not in self.before.other_names | self.populated
            is_inserted = self.shows_creation and is_new
            # No copy brings rows of a table that the lake already has.
            lacks_rows = table in (self.uncopied if columns is None else self.populated)
            value = CREATED if is_inserted else UNCOPIED if lacks_rows else None
            self.record(SchemaChange.TABLE_ADDED, table, observation.database or None, value, since=since)
            if columns is None:
                self.fresh[table] = False
        return self.history.tables[table]

    def _add(self, table: str, name: str, column: ObservedColumn, place: OrderPlace) -> None:
        # Only whole rows that lack a column show that it did not exist before.
        since = None if self.fresh.get(table) is False else place
        if since is not None:
            self._find_unwatched(table, name)
        is_variant = self.widens and any(
            case_key(version.name) == case_key(name) for version in self.history.tables[table].live_versions
        )
        change = SchemaChange.COLUMN_CASE_VARIANT if is_variant else SchemaChange.COLUMN_ADDED
        self.record_version(change, table, name, column, since)

    def _widen(self, table: str, version: ColumnVersion, column: ObservedColumn, place: OrderPlace) -> None:
        wide = joined_type(version.type, column.type)
        if same_type(wide, version.type):
            return
        wider = replace(column, type=wide, is_primary_key=version.is_primary_key, ordinal=version.ordinal)
        self.record_version(SchemaChange.COLUMN_WIDENED, table, version.name, wider, place, version)

    def _retype(self, table: str, version: ColumnVersion, column: ObservedColumn, place: OrderPlace) -> None:
        if (table, version.name) in self.missed or (table, version.name) in self.recreated:
            self._renew(table, version, column, place)
            return
        check_setting(table, version, column)
        change = SchemaChange.COLUMN_RETYPED
        if not self.converts:
            is_kept = keeps_values(version.type, column.type)
            change = SchemaChange.COLUMN_WIDENED if is_kept else SchemaChange.COLUMN_REPLACED
        self.record_version(change, table, version.name, column, place, version)

    def _is_recreated(self, table: str, name: str, columns: Mapping[str, ObservedColumn]) -> bool:
        if (table, name) in self.removed:
            return True
        recreated_column = self.recreated.get((table, name))
        ordinals = {other: column.ordinal for other, column in columns.items() if not column.is_primary_key}
        return recreated_column is not None and recreated_column.is_new(name, ordinals)

    def _renew(self, table: str, version: ColumnVersion, column: ObservedColumn, place: OrderPlace) -> None:
        # The column was absent in between: its old values are lost, not converted.
        since = self.missed.get((table, version.name), place)
        if (table, version.name) in self.unwatched:
            self.record_unwatched(table, (*self.history.tables[table].unwatched, version.name), since)
        self.drop(table, version, since)
        self.record_version(SchemaChange.COLUMN_ADDED, table, version.name, column, place, version)
        self.recreated.pop((table, version.name), None)
