"""Finding schema changes: by what records say of their columns, and by a look at the source."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from cdc_platform.model.base.names import case_key
from cdc_platform.model.schema.column_versions import ColumnHistory, ColumnVersion
from cdc_platform.model.schema.evolution import SchemaHistory, same_type
from cdc_platform.model.schema.observed_columns import SeenColumn, Sighting, key_types
from cdc_platform.model.schema.recreated_columns import Renewal, find_renewed
from cdc_platform.model.schema.recreated_tables import find_renamed, has_other_key, tells_births
from cdc_platform.model.schema.schema_events import CREATED, UNCOPIED, SchemaChange, SchemaEvent
from cdc_platform.model.schema.schema_reads import Look
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.schema.widening import joined_type, keeps_values


def is_news(
    history: SchemaHistory,
    table: str,
    columns: Mapping[str, SeenColumn],
    *,
    is_whole: bool,
    widens: bool = False,
) -> bool:
    """Whether records with these columns may tell of a change; most do not, and cost nothing further.

    With ``widens`` records come in no order: see `find_events`.
    """
    found = history.tables.get(table)
    if found is None or not found.is_watched:
        return True
    if not widens and has_other_key(found, key_types(columns)):
        return True
    differs = _is_wider if widens else _differs
    if any(differs(found.live(name), column) for name, column in columns.items()):
        return True
    return is_whole and not widens and any(version.name not in columns for version in found.live_versions)


def _differs(version: ColumnVersion | None, seen: SeenColumn) -> bool:
    return version is None or not same_type(version.type, seen.type)


def _is_wider(version: ColumnVersion | None, seen: SeenColumn) -> bool:
    return version is None or not same_type(version.type, joined_type(version.type, seen.type))


def find_events(
    history: SchemaHistory,
    cycle: int,
    sightings: Mapping[str, Iterable[Sighting]],
    look: Look | None,
    *,
    look_back: Callable[[int], Look] | None = None,
    widens: bool = False,
) -> tuple[SchemaEvent, ...]:
    """Return what has changed since a history, in order.

    Args:
        history: what is known so far.
        cycle: cycle of the log that the sightings belong to.
        sightings: per table, in commit order.
        look: the source's word at the log's position; None where it was not asked.
        look_back: asks the source for its schema at an earlier moment. Where a whole row certainly lacks a
            column it tells whether that was dropped or not watched; without it, absence tells nothing.
        widens: whether records come in no order, so that an older shape may be seen after a newer one. Then
            a column has the narrowest type that holds all values seen, and one that is lacking stays.
    """
    births = tells_births(history, look, look_back)
    renamed = find_renamed(history, look, look_back) if births else frozenset()
    renewals = {} if widens else dict(find_renewed(history, look))
    # Of files and topics a look tells nothing: keys may change there, and nobody knows how values have been
    # converted whose column got another type.
    is_told = look is None or look.is_exact or bool(look.tables)
    fixes_keys = not widens and look is not None and is_told
    finder = _Finder(
        history,
        cycle,
        history,
        births,
        widens=widens,
        fixes_keys=fixes_keys,
        converts=is_told,
        look_back=look_back,
        renewals=renewals,
        renamed=renamed,
        uncopied=look.uncopied if look is not None else frozenset(),
    )
    for table in sorted(sightings):
        for sighting in sightings[table]:
            finder.see(table, sighting)
    if look is not None:
        finder.look(look)
    return tuple(finder.events)


@dataclass
class _Finder:
    history: SchemaHistory
    cycle: int
    before: SchemaHistory
    tells_births: bool
    widens: bool = False
    fixes_keys: bool = False
    converts: bool = True
    look_back: Callable[[int], Look] | None = None
    renewals: dict[tuple[str, str], Renewal] = field(default_factory=dict)
    """Columns that a look has found recreated, and that no record has shown to be so far."""
    renamed: frozenset[str] = frozenset()
    """Tables that may have had rows under another name."""
    uncopied: frozenset[str] = frozenset()
    """Tables that may have had rows before, which no copy brings."""
    events: list[SchemaEvent] = field(default_factory=list)
    fresh: dict[str, bool] = field(default_factory=dict)
    """Tables that came up in this window: whether a whole row of them was seen."""
    missed: dict[tuple[str, str], int] = field(default_factory=dict)
    """Columns that whole rows have lacked since they were seen last, and since when."""
    gone: set[tuple[str, str]] = field(default_factory=set)
    """Those of them that were certainly dropped, or left the change stream."""
    left: set[tuple[str, str]] = field(default_factory=set)
    """Those of these that left it: the source had them all the same."""
    whole_at: dict[str, int] = field(default_factory=dict)
    """When a whole row, or a copy, was seen of each table in this window the last time."""

    def see(self, table: str, sighting: Sighting, *, may_retype: bool = True) -> None:
        is_remade = self._is_remade(table, sighting)
        if is_remade and not may_retype:
            # It is a later table, and when it was made the records up to then will tell.
            return
        known = self._remade(table, sighting) if is_remade else self._watched(table, sighting.micros)
        for name, seen in sighting.columns.items():
            version = known.live(name)
            if version is None:
                self._add(table, name, seen, sighting.micros)
            elif self.widens:
                self._widen(table, version, seen, sighting.micros)
            elif self._is_renewed(table, name, sighting.columns) or self._joins_key(version, seen):
                self._renew(table, version, seen, sighting.micros)
            elif _differs(version, seen) and may_retype:
                self._retype(table, version, seen, sighting.micros)
            self.missed.pop((table, name), None)
            for names in (self.gone, self.left):
                names.discard((table, name))
        if sighting.is_whole:
            self._miss(table, sighting)

    def _is_remade(self, table: str, sighting: Sighting) -> bool:
        known = self.history.tables.get(table)
        return self.fixes_keys and known is not None and has_other_key(known, key_types(sighting.columns))

    def _remade(self, table: str, sighting: Sighting) -> ColumnHistory:
        """Let a table start over, without the columns of the key that it no longer has."""
        was_dropped = self.history.tables[table].is_dropped
        known = self._watched(table, sighting.micros)
        if not was_dropped:
            self._tell(
                SchemaEvent(self.cycle, SchemaChange.TABLE_DROPPED, table, since_micros=sighting.micros)
            )
            known = self._watched(table, sighting.micros)
        for version in known.live_versions:
            if version.is_primary_key and version.name not in sighting.columns:
                self._drop(table, version, sighting.micros)
        return self.history.tables[table]

    def _joins_key(self, version: ColumnVersion, seen: SeenColumn) -> bool:
        """Whether a column is in the key now, or no longer, as it can be of another table only."""
        return self.fixes_keys and version.is_primary_key != seen.is_primary_key

    def _miss(self, table: str, sighting: Sighting) -> None:
        """Remember the columns that a whole row lacks."""
        if table in self.fresh:
            self.fresh[table] = True
        self.whole_at[table] = sighting.micros
        for version in self.history.tables[table].live_versions:
            if version.name not in sighting.columns:
                self.missed.setdefault((table, version.name), sighting.micros)
                if sighting.is_sure and (table, version.name) not in self.gone:
                    self._ask_why(table, version.name, sighting.micros)

    def _ask_why(self, table: str, name: str, micros: int) -> None:
        """Let the source tell whether a column that a row lacks was dropped or not watched."""
        look = self._look_back(micros)
        if look is not None:
            self.gone.add((table, name))
            if name in look.unwatched.get(table, ()):
                self.left.add((table, name))

    def _look_back(self, micros: int) -> Look | None:
        look = self.look_back(micros) if self.look_back is not None and not self.widens else None
        return look if look is not None and look.is_exact else None

    def _see_unwatched(self, table: str, name: str) -> None:
        """Let the source tell whether a column that comes up was there before, and just not watched."""
        micros = self.whole_at.get(table)
        look = self._look_back(micros) if micros is not None else None
        known = self.history.tables[table].unwatched
        if look is not None and name not in known and name in look.unwatched.get(table, ()):
            self._tell_unwatched(table, (*known, name), micros)

    def look(self, look: Look) -> None:
        is_first = self.history.cycle == 0
        for schema in look.tables:
            seen = Sighting.of_table(look.micros, schema, is_whole=False)
            missed = {name: at for (table, name), at in self.missed.items() if table == schema.name}
            self.gone |= self.renewals.keys()
            self.see(schema.name, seen, may_retype=look.is_exact)
            self._drop_columns(schema.name, seen.columns, missed, look)
            since = None if is_first else look.micros
            self._tell_unwatched(schema.name, look.unwatched.get(schema.name, ()), since)
            self._tell_generated(schema.name, look.generated.get(schema.name, ()), since)
            if not self.widens:
                # What stands where now is not where it stood when such a look was taken.
                self._place(schema if look.is_exact else replace(schema, columns=schema.key_columns))
                self._ordering_key(schema, look.micros)
        if look.is_exact:
            self._drop_tables(look)
            others = look.unwatched.keys() - {*look.keyless, *(schema.name for schema in look.tables)}
            since = None if is_first else look.micros
            self._name_tables(SchemaChange.OTHER_TABLES, self.history.others, others, since)
            self._name_tables(SchemaChange.KEYLESS_TABLES, self.history.keyless, look.keyless, since)
        self._set_options(look, is_first=is_first)

    def _watched(self, table: str, micros: int) -> ColumnHistory:
        known = self.history.tables.get(table)
        if known is None or not known.is_watched:
            is_beginning = self.history.cycle == 0 and known is None
            since = None if is_beginning else micros
            is_new = known is None and table not in self.before.others | self.renamed
            is_inserted = self.tells_births and is_new
            value = CREATED if is_inserted else UNCOPIED if known is None and table in self.uncopied else None
            change = SchemaChange.TABLE_ADDED
            self._tell(SchemaEvent(self.cycle, change, table, None, value, since_micros=since))
            if known is None:
                self.fresh[table] = False
        return self.history.tables[table]

    def _add(self, table: str, name: str, seen: SeenColumn, micros: int) -> None:
        # Nothing tells of a column that it was not there before, unless whole rows have lacked it.
        since = None if self.fresh.get(table) is False else micros
        if since is not None:
            self._see_unwatched(table, name)
        is_beside = self.widens and any(
            case_key(version.name) == case_key(name) for version in self.history.tables[table].live_versions
        )
        change = SchemaChange.COLUMN_BESIDE if is_beside else SchemaChange.COLUMN_ADDED
        self._tell(self._of_column(change, table, name, seen, since))

    def _widen(self, table: str, version: ColumnVersion, seen: SeenColumn, micros: int) -> None:
        wide = joined_type(version.type, seen.type)
        if same_type(wide, version.type):
            return
        kept = replace(seen, type=wide, is_primary_key=version.is_primary_key, ordinal=version.ordinal)
        event = self._of_column(SchemaChange.COLUMN_WIDENED, table, version.name, kept, micros)
        self._tell(replace(event, previous=version.type.to_json()))

    def _retype(self, table: str, version: ColumnVersion, seen: SeenColumn, micros: int) -> None:
        if (table, version.name) in self.missed or (table, version.name) in self.renewals:
            self._renew(table, version, seen, micros)
            return
        change = SchemaChange.COLUMN_RETYPED
        if not self.converts:
            is_kept = keeps_values(version.type, seen.type)
            change = SchemaChange.COLUMN_WIDENED if is_kept else SchemaChange.COLUMN_REPLACED
        event = self._of_column(change, table, version.name, seen, micros)
        self._tell(replace(event, previous=version.type.to_json()))

    def _is_renewed(self, table: str, name: str, columns: Mapping[str, SeenColumn]) -> bool:
        if (table, name) in self.gone:
            return True
        renewal = self.renewals.get((table, name))
        ordinals = {other: seen.ordinal for other, seen in columns.items() if not seen.is_primary_key}
        return renewal is not None and renewal.is_new(name, ordinals)

    def _renew(self, table: str, version: ColumnVersion, seen: SeenColumn, micros: int) -> None:
        # It was away in between: what it had is not converted, but gone.
        since = self.missed.get((table, version.name), micros)
        if (table, version.name) in self.left:
            self._tell_unwatched(table, (*self.history.tables[table].unwatched, version.name), since)
        self._drop(table, version, since)
        event = self._of_column(SchemaChange.COLUMN_ADDED, table, version.name, seen, micros)
        self._tell(replace(event, previous=version.type.to_json()))
        self.renewals.pop((table, version.name), None)

    def _drop(self, table: str, version: ColumnVersion, micros: int) -> None:
        before = version.type.to_json()
        change = SchemaChange.COLUMN_DROPPED
        self._tell(SchemaEvent(self.cycle, change, table, version.name, None, before, since_micros=micros))

    def _of_column(
        self, change: SchemaChange, table: str, name: str, seen: SeenColumn, since: int | None
    ) -> SchemaEvent:
        return SchemaEvent(
            cycle=self.cycle,
            change=change,
            table=table,
            name=name,
            value=seen.type.to_json(),
            is_primary_key=seen.is_primary_key,
            ordinal=seen.ordinal,
            since_micros=since,
        )

    def _drop_columns(
        self, table: str, columns: Mapping[str, SeenColumn], missed: Mapping[str, int], look: Look
    ) -> None:
        for version in self.history.tables[table].live_versions:
            if version.name in columns:
                continue
            if look.is_exact or version.name in missed:
                self._drop(table, version, missed.get(version.name, look.micros))

    def _place(self, schema: TableSchema) -> None:
        places = {column.name: column.ordinal for column in schema.value_columns}
        if places != self.history.tables[schema.name].places:
            change = SchemaChange.COLUMNS_PLACED
            self._tell(SchemaEvent(self.cycle, change, schema.name, None, json.dumps(places)))

    def _ordering_key(self, schema: TableSchema, micros: int) -> None:
        """Take the order of a key from the source: records number its columns by their places."""
        before = [column.name for column in self.history.tables[schema.name].schema.key_columns]
        now = [column.name for column in schema.key_columns]
        if now != before and set(now) == set(before):
            change, value = SchemaChange.KEY_ORDERED, json.dumps(now)
            since = None if self.history.cycle == 0 else micros
            self._tell(SchemaEvent(self.cycle, change, schema.name, None, value, since_micros=since))

    def _drop_tables(self, look: Look) -> None:
        watched = {schema.name for schema in look.tables}
        for name, known in sorted(self.history.tables.items()):
            if known.is_watched and name not in watched:
                exists = name in look.unwatched
                change = SchemaChange.TABLE_UNWATCHED if exists else SchemaChange.TABLE_DROPPED
                self._tell(SchemaEvent(self.cycle, change, name, since_micros=look.micros))

    def _name_tables(
        self, change: SchemaChange, before: Collection[str], now: Collection[str], since: int | None
    ) -> None:
        if set(now) != set(before):
            value, previous = (json.dumps(sorted(names)) for names in (now, before))
            self._tell(SchemaEvent(self.cycle, change, None, None, value, previous, since_micros=since))

    def _tell_unwatched(self, table: str, names: Iterable[str], since: int | None) -> None:
        before = self.history.tables[table].unwatched
        self._tell_columns(SchemaChange.UNWATCHED_COLUMNS, table, before, names, since)

    def _tell_generated(self, table: str, names: Iterable[str], since: int | None) -> None:
        before = self.history.tables[table].generated
        self._tell_columns(SchemaChange.GENERATED_COLUMNS, table, before, names, since)

    def _tell_columns(
        self,
        change: SchemaChange,
        table: str,
        before: tuple[str, ...],
        names: Iterable[str],
        since: int | None,
    ) -> None:
        now = tuple(sorted(names))
        if now != before:
            value, previous = (json.dumps(listed) if listed else None for listed in (now, before))
            self._tell(SchemaEvent(self.cycle, change, table, None, value, previous, since_micros=since))

    def _set_options(self, look: Look, *, is_first: bool) -> None:
        before = self.history.options
        for name in sorted(before.keys() | look.options.keys()):
            value, previous = look.options.get(name), before.get(name)
            if value != previous:
                since = None if is_first else look.micros
                change = SchemaChange.OPTION_SET
                self._tell(SchemaEvent(self.cycle, change, None, name, value, previous, since_micros=since))

    def _tell(self, event: SchemaEvent) -> None:
        self.events.append(event)
        self.history = self.history.after(event)
