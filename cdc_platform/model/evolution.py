"""How the source's tables have changed: a history of changes, and the columns that follow from it.

A column of the source may have several versions: it was dropped and added again, or got another type. The
newest version bears the column's name in the lake. An older one is set aside under a name of its own, such
as `note__string`, keeps the values that it had, and takes none that are younger than it.
"""

import json
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from types import MappingProxyType
from typing import Final

from cdc_platform.model.schema_events import CREATED, SchemaChange, SchemaEvent
from cdc_platform.model.table_schema import ARRAY, Column, ColumnLife, ColumnType, TableSchema, spark_type
from cdc_platform.model.widening import can_be_carried


@dataclass(frozen=True)
class Bound:
    """When a version began or ended: the tick of the log that found it, and the commit timestamp."""

    tick: int
    micros: int | None


@dataclass(frozen=True)
class ColumnVersion:
    """A column of the lake's table; ``before`` is the position of the version that it was converted from.

    ``is_late`` tells that the column existed before it was watched, so that the lake lacks older values.
    ``past_names`` are those that it had in the lake, oldest first, until others claimed them.
    """

    name: str
    lake_name: str
    type: ColumnType
    is_primary_key: bool
    ordinal: int
    since: Bound
    until: Bound | None = None
    before: int | None = None
    is_late: bool = False
    past_names: tuple[str, ...] = ()

    def is_held_as(self, name: str, there: Container[str]) -> bool:
        """Whether a table with these columns, in lower case, has the version under a name, if it has it.

        A name that it is set aside under is a new one, so of its names the newest that is there tells.
        """
        names = (known.casefold() for known in (self.lake_name, *reversed(self.past_names)))
        return next((known for known in names if known in there), None) == name.casefold()

    def is_over_at(self, micros: int) -> bool:
        """Whether the source no longer had this version at a moment; bounds are never too early."""
        return self.until is not None and (self.until.micros or 0) <= micros


@dataclass(frozen=True)
class ColumnHistory:
    """All versions of all columns of a source table, in the order in which they came up.

    ``is_created`` is set where the table was made while the stream was read, so that the log has all of it.
    ``beginnings`` has each time at which a table of this name was made anew after it was dropped: of its
    rows none counts that is older than the newest of them.
    ``has_gap`` tells that the table was not watched for a while. ``places`` are the ordinals at the source
    of the columns outside the key, as far as they are those that the last exact look has seen.
    """

    name: str
    versions: tuple[ColumnVersion, ...] = ()
    is_watched: bool = True
    is_dropped: bool = False
    is_created: bool = False
    has_gap: bool = False
    beginnings: tuple[Bound, ...] = ()
    unwatched: tuple[str, ...] = ()
    places: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def live(self, name: str) -> ColumnVersion | None:
        """Return the version of a column that the source has now, None when it has none."""
        return next((found for found in self.live_versions if found.name == name), None)

    @property
    def begun(self) -> Bound | None:
        """When the table was made anew the last time, None when it never was."""
        return self.beginnings[-1] if self.beginnings else None

    @property
    def has_retyped_key(self) -> bool:
        """Whether the log may write one key in several ways, since its columns had other types before."""
        return any(version.is_primary_key and version.until is not None for version in self.versions)

    @property
    def live_versions(self) -> tuple[ColumnVersion, ...]:
        """The columns that the source has now."""
        return tuple(version for version in self.versions if version.until is None)

    @property
    def schema(self) -> TableSchema:
        """The columns that the source has now, or had when the table was dropped."""
        return _in_order(self.name, (self._column(version) for version in self.live_versions))

    @property
    def whole_schema(self) -> TableSchema:
        """All columns of the lake's table, each under its name there."""
        return TableSchema(self.name, tuple(self._column(version) for version in self.versions))

    def schema_after(self, tick: int) -> TableSchema:
        """Return all columns of the lake's table as changes of the log after a tick set them, with lives.

        A life is only told where it matters: where it begins after that tick, or has an end. A column that
        ended before stays among them: a row that is deleted and inserted again loses what it had there.
        """
        return _in_order(self.name, (self._column(version, tick) for version in self.versions))

    def conversions_after(
        self, tick: int, copied_micros: int | None = None
    ) -> tuple[tuple[ColumnVersion, ColumnVersion], ...]:
        """Return older and newer versions whose stored values are to be converted after a tick, in order.

        With the moment of a copy, the values are those of that moment, and not older than it.
        """
        return tuple(
            (self.versions[version.before], version)
            for version in self.versions
            if version.before is not None
            and version.since.tick > tick
            and (copied_micros is None or (version.since.micros or 0) > copied_micros)
        )

    def version_held(
        self, name: str, type_text: str, copied_micros: int | None, there: Container[str]
    ) -> ColumnVersion | None:
        """Return the version whose values a column of the table bears.

        What was copied may be younger than the oldest version that the log tells of: the type decides,
        then the moment of the copy, after which the version must have ended.

        Args:
            name: the column's name in the table.
            type_text: the column's type as Spark writes it.
            copied_micros: the moment of the table's copy, None where there is none.
            there: names in lower case of all columns that the table has.
        """
        named = [version for version in self.versions if version.is_held_as(name, there)]
        fitting = [found for found in named if _plain_type(spark_type(found.type)) == _plain_type(type_text)]
        candidates = fitting or named
        living = [
            found for found in candidates if copied_micros is None or not found.is_over_at(copied_micros)
        ]
        return next(iter(living or candidates), None)

    def _column(self, version: ColumnVersion, after_tick: int | None = None) -> Column:
        is_key = version.is_primary_key and version.until is None
        life = None if after_tick is None else self._life(version, after_tick)
        return Column(version.lake_name, version.type, is_key, version.ordinal, life)

    def _life(self, version: ColumnVersion, tick: int) -> ColumnLife | None:
        is_young = version.since.tick > tick
        since = version.since.micros if is_young else None
        until = version.until.micros if version.until is not None else None
        before = None
        if is_young and version.before is not None:
            before = self._column(self.versions[version.before], tick)
        if since is None and until is None and version.lake_name == version.name:
            return None
        was_key = version.is_primary_key and version.until is not None
        return ColumnLife(version.name, since, until, before, was_key)


def _plain_type(text: str) -> str:
    return text.replace(" ", "").lower()


def _in_order(name: str, columns: Iterable[Column]) -> TableSchema:
    return TableSchema(
        name, tuple(sorted(columns, key=lambda column: (not column.is_primary_key, column.ordinal)))
    )


@dataclass(frozen=True)
class SchemaHistory:
    """What is known of all tables and of the change stream's options, up to a tick of the log.

    ``position_micros`` is the log's position at that tick. ``past_options`` holds every value that an
    option has had. ``others`` are tables that exist and are not watched.
    """

    tick: int = 0
    position_micros: int | None = None
    tables: Mapping[str, ColumnHistory] = field(default_factory=lambda: MappingProxyType({}))
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    past_options: frozenset[tuple[str, str]] = frozenset()
    others: frozenset[str] = frozenset()

    def after(self, event: SchemaEvent) -> "SchemaHistory":
        """Return the history with one more change."""
        if event.change is SchemaChange.OTHER_TABLES:
            return replace(self, others=frozenset(_names(event.value)))
        if event.table is None:
            return self._with_option(event)
        found = self.tables.get(event.table, ColumnHistory(event.table))
        return replace(self, tables={**self.tables, event.table: _CHANGES[event.change](found, event)})

    def _with_option(self, event: SchemaEvent) -> "SchemaHistory":
        name = str(event.name)
        options = {option: value for option, value in self.options.items() if option != name}
        if event.value is None:
            return replace(self, options=options)
        past = self.past_options | {(name, event.value)}
        return replace(self, options={**options, name: event.value}, past_options=past)


def fold_history(events: Iterable[SchemaEvent]) -> SchemaHistory:
    """Return the history that changes make, in their order."""
    return reduce(SchemaHistory.after, events, SchemaHistory())


def same_type(one: ColumnType, other: ColumnType) -> bool:
    """Whether two descriptions mean one type: records and information schema spell rare types differently."""
    if one == other:
        return True
    if one.element is not None and other.element is not None:
        return same_type(one.element, other.element)
    is_rare = not {one.code, other.code} <= _COMMON
    return is_rare and spark_type(one) == spark_type(other)


_COMMON: Final = frozenset(
    {
        *("BOOL", "INT64", "FLOAT32", "FLOAT64", "NUMERIC", "STRING", "BYTES", "DATE", "TIMESTAMP"),
        *("JSON", "PROTO", ARRAY),
    }
)


def is_convertible(old: ColumnType, new: ColumnType) -> bool:
    """Whether Spanner lets a column change between these types in place, and so converts what is stored."""
    if old.element is not None and new.element is not None:
        return is_convertible(old.element, new.element)
    return (old.code, new.code) in _IN_PLACE


_IN_PLACE: Final = frozenset(
    {("STRING", "BYTES"), ("BYTES", "STRING"), ("PROTO", "BYTES"), ("BYTES", "PROTO")},
)


def _add_table(table: ColumnHistory, event: SchemaEvent) -> ColumnHistory:
    anew = (Bound(event.tick, event.since_micros),) if table.is_dropped else ()
    has_gap = table.has_gap or not (table.is_watched or table.is_dropped)
    created = table.is_created or event.value == CREATED
    return replace(
        table,
        is_watched=True,
        is_dropped=False,
        is_created=created,
        has_gap=has_gap,
        beginnings=table.beginnings + anew,
        places={},
    )


def _drop_table(table: ColumnHistory, event: SchemaEvent) -> ColumnHistory:
    return replace(table, is_watched=False, is_dropped=event.change is SchemaChange.TABLE_DROPPED)


def _unwatch_columns(table: ColumnHistory, event: SchemaEvent) -> ColumnHistory:
    return replace(table, unwatched=tuple(sorted(_names(event.value))))


def _place_columns(table: ColumnHistory, event: SchemaEvent) -> ColumnHistory:
    return replace(table, places=json.loads(str(event.value)))


def _without_place(table: ColumnHistory, name: str | None) -> ColumnHistory:
    return replace(table, places={known: place for known, place in table.places.items() if known != name})


def _names(value: str | None) -> list[str]:
    return [str(name) for name in json.loads(value)] if value else []


def _add_column(table: ColumnHistory, event: SchemaEvent) -> ColumnHistory:
    table = _claim_name(table, str(event.name), Bound(event.tick, event.since_micros))
    added = _version_of(event, is_late=event.name in table.unwatched)
    return replace(_without_place(table, event.name), versions=(*table.versions, added))


def _add_beside(table: ColumnHistory, event: SchemaEvent) -> ColumnHistory:
    return _append_beside(table, _version_of(event))


def _append_beside(table: ColumnHistory, version: ColumnVersion) -> ColumnHistory:
    taken = {known.lake_name.casefold() for known in table.versions}
    beside = replace(version, lake_name=_aside_name(version, taken))
    return replace(table, versions=(*table.versions, beside))


def _drop_column(table: ColumnHistory, event: SchemaEvent) -> ColumnHistory:
    until = Bound(event.tick, event.since_micros)
    versions = (
        replace(version, until=until) if version.until is None and version.name == event.name else version
        for version in table.versions
    )
    return replace(_without_place(table, event.name), versions=tuple(versions))


def _widen_column(table: ColumnHistory, event: SchemaEvent) -> ColumnHistory:
    return _retype(table, event, lambda old, _: can_be_carried(old))


def _retype_column(table: ColumnHistory, event: SchemaEvent) -> ColumnHistory:
    # It may be another column of the same name, at another place.
    return _without_place(_retype(table, event, is_convertible), event.name)


def _retype(
    table: ColumnHistory, event: SchemaEvent, converting: Callable[[ColumnType, ColumnType], bool]
) -> ColumnHistory:
    new = _version_of(event)
    place = next(n for n, v in enumerate(table.versions) if v.until is None and v.name == event.name)
    old = table.versions[place]
    converts = converting(old.type, new.type)
    if same_type(old.type, new.type) or (converts and spark_type(old.type) == spark_type(new.type)):
        # The lake's column stays as it is.
        kept = replace(old, type=new.type, is_primary_key=new.is_primary_key, ordinal=new.ordinal)
        return replace(table, versions=(*table.versions[:place], kept, *table.versions[place + 1 :]))
    new = replace(new, before=place if converts else None)
    if old.lake_name.casefold() == new.name.casefold():
        table = _claim_name(table, new.name, new.since)
        return replace(table, versions=(*table.versions, new))
    # It stands beside another column of its name, and goes on to do so.
    ended = replace(old, until=new.since)
    table = replace(table, versions=(*table.versions[:place], ended, *table.versions[place + 1 :]))
    return _append_beside(table, new)


def _version_of(event: SchemaEvent, *, is_late: bool = False) -> ColumnVersion:
    name = str(event.name)
    return ColumnVersion(
        name=name,
        lake_name=name,
        type=ColumnType.from_json(str(event.value)),
        is_primary_key=event.is_primary_key,
        ordinal=event.ordinal,
        since=Bound(event.tick, event.since_micros),
        is_late=is_late,
    )


def _claim_name(table: ColumnHistory, name: str, since: Bound) -> ColumnHistory:
    """Set the version aside that has the name in the lake, where names differ by more than case."""
    taken = {version.lake_name.casefold() for version in table.versions}
    versions = [
        _set_aside(version, since, taken) if version.lake_name.casefold() == name.casefold() else version
        for version in table.versions
    ]
    return replace(table, versions=tuple(versions))


def _set_aside(version: ColumnVersion, since: Bound, taken: set[str]) -> ColumnVersion:
    return replace(
        version,
        until=version.until or since,
        lake_name=_aside_name(version, taken),
        past_names=(*version.past_names, version.lake_name),
    )


def _aside_name(version: ColumnVersion, taken: set[str]) -> str:
    kind, words = version.type, []
    while kind.element is not None:
        words.append(kind.code)
        kind = kind.element
    name = "__".join([version.name, "_".join([*words, kind.code]).lower()])
    number = 2
    found = name
    while found.casefold() in taken:
        found, number = f"{name}_{number}", number + 1
    return found


_CHANGES: Final = {
    SchemaChange.TABLE_ADDED: _add_table,
    SchemaChange.TABLE_DROPPED: _drop_table,
    SchemaChange.TABLE_UNWATCHED: _drop_table,
    SchemaChange.COLUMN_ADDED: _add_column,
    SchemaChange.COLUMN_DROPPED: _drop_column,
    SchemaChange.COLUMN_RETYPED: _retype_column,
    SchemaChange.COLUMN_WIDENED: _widen_column,
    SchemaChange.COLUMN_BESIDE: _add_beside,
    SchemaChange.COLUMNS_PLACED: _place_columns,
    SchemaChange.UNWATCHED_COLUMNS: _unwatch_columns,
}
