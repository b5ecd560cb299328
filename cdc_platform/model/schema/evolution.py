"""The schema history of the source's tables, and the effect of each schema change on it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from cdc_platform.model.base.names import case_key
from cdc_platform.model.base.stored_texts import parse_stored
from cdc_platform.model.schema.column_versions import Bound, ColumnHistory, ColumnVersion
from cdc_platform.model.schema.schema_events import CREATED, UNCOPIED, SchemaChange, SchemaEvent
from cdc_platform.model.schema.table_schema import ARRAY, ColumnType, spark_type


@dataclass(frozen=True)
class SchemaHistory:
    """Schemas of all tables and options of the change stream, up to a cycle of the log.

    ``position_micros`` is the log's position at that cycle. ``past_options`` holds every value that an option
    ever had. ``other_names`` are existing tables that are not watched; ``keyless`` are watched tables
    without a key column.
    """

    cycle: int = 0
    position_micros: int | None = None
    tables: Mapping[str, ColumnHistory] = field(default_factory=lambda: MappingProxyType({}))
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    past_options: frozenset[tuple[str, str]] = frozenset()
    other_names: frozenset[str] = frozenset()
    keyless: frozenset[str] = frozenset()

    def after(self, event: SchemaEvent) -> "SchemaHistory":
        """Return the history with one more change."""
        if event.change is SchemaChange.OTHER_TABLES:
            return replace(self, other_names=frozenset(_names(event.value)))
        if event.change is SchemaChange.KEYLESS_TABLES:
            return replace(self, keyless=frozenset(_names(event.value)))
        if event.table is None:
            return self._with_option(event)
        columns = self.tables.get(event.table, ColumnHistory(event.table))
        return replace(self, tables={**self.tables, event.table: _CHANGES[event.change](columns, event)})

    @property
    def names_in_order(self) -> tuple[str, ...]:
        """The known tables in the order in which they came up; tables of one cycle are sorted by name."""
        return tuple(sorted(self.tables, key=lambda name: (self.tables[name].first_cycle, name)))

    @property
    def observed_since(self) -> Mapping[tuple[str, str], int]:
        """When columns or their types came up, by table and name, without those from the beginning."""
        moments = (
            (table.name, version.name, table.observed_since(version.name))
            for table in self.tables.values()
            for version in table.live_versions
        )
        return {(table, name): since for table, name, since in moments if since is not None}

    def _with_option(self, event: SchemaEvent) -> "SchemaHistory":
        name = str(event.name)
        options = {option: value for option, value in self.options.items() if option != name}
        if event.value is None:
            return replace(self, options=options)
        past = self.past_options | {(name, event.value)}
        return replace(self, options={**options, name: event.value}, past_options=past)


def same_type(first: ColumnType, other: ColumnType) -> bool:
    """Return whether two descriptions mean one type: records spell rare types differently."""
    if first == other:
        return True
    if first.element is not None and other.element is not None:
        return same_type(first.element, other.element)
    codes = {first.code, other.code}
    if any(map(_is_name, codes)) and all(_is_name(code) or code in _NAMED for code in codes):
        return True
    is_rare = not codes <= _COMMON
    return is_rare and spark_type(first) == spark_type(other)


def _is_name(code: str) -> bool:
    """Return whether a code is the name of a message or an enum, as the information schema may spell them."""
    return code.startswith("`")


_NAMED: Final = frozenset({"PROTO", "ENUM"})
_COMMON: Final = frozenset(
    {
        *("BOOL", "INT64", "FLOAT32", "FLOAT64", "NUMERIC", "STRING", "BYTES", "DATE", "TIMESTAMP"),
        *("JSON", "PROTO", ARRAY),
    }
)


def is_convertible(former_type: ColumnType, new_type: ColumnType) -> bool:
    """Return whether Spanner converts a column between these types in place, stored values included."""
    if former_type.element is not None and new_type.element is not None:
        return is_convertible(former_type.element, new_type.element)
    return (former_type.code, new_type.code) in _IN_PLACE


_IN_PLACE: Final = frozenset(
    {("STRING", "BYTES"), ("BYTES", "STRING"), ("PROTO", "BYTES"), ("BYTES", "PROTO")},
)


def _add_table(table: ColumnHistory, event: SchemaEvent) -> ColumnHistory:
    beginnings = (Bound(event.cycle, event.since),) if table.is_dropped else ()
    has_gap = table.has_gap or not (table.is_watched or table.is_dropped)
    is_created = table.is_created or event.value == CREATED
    is_uncopied = event.value == UNCOPIED or (table.is_uncopied and not table.is_dropped)
    return replace(
        table,
        database=event.name or "",
        is_watched=True,
        is_dropped=False,
        is_created=is_created,
        is_uncopied=is_uncopied,
        has_gap=has_gap,
        beginnings=table.beginnings + beginnings,
        places={},
    )


def _ordering_key(table: ColumnHistory, event: SchemaEvent) -> ColumnHistory:
    ordinals = {name: number for number, name in enumerate(_names(event.value), start=1)}
    versions = (
        replace(version, ordinal=ordinals[version.name])
        if version.until is None and version.is_primary_key
        else version
        for version in table.versions
    )
    return replace(table, versions=tuple(versions))


def _without_place(table: ColumnHistory, name: str | None) -> ColumnHistory:
    return replace(table, places={column: place for column, place in table.places.items() if column != name})


def _names(value: str | None) -> list[str]:
    return parse_stored(value, list[str]) if value else []


def _add_column(table: ColumnHistory, event: SchemaEvent) -> ColumnHistory:
    table = _claim_name(table, str(event.name), Bound(event.cycle, event.since))
    version = _version_of(event, is_late=event.name in table.unwatched)
    return replace(_without_place(table, event.name), versions=(*table.versions, version))


def _append_version(table: ColumnHistory, version: ColumnVersion) -> ColumnHistory:
    names = {case_key(version.lake_name) for version in table.versions}
    version_aside = replace(version, lake_name=_aside_name(version, names))
    return replace(table, versions=(*table.versions, version_aside))


def _drop_column(table: ColumnHistory, event: SchemaEvent) -> ColumnHistory:
    until = Bound(event.cycle, event.since)
    versions = (
        replace(version, until=until) if version.until is None and version.name == event.name else version
        for version in table.versions
    )
    return replace(_without_place(table, event.name), versions=tuple(versions))


def _retype(
    table: ColumnHistory, event: SchemaEvent, converting: Callable[[ColumnType, ColumnType], bool]
) -> ColumnHistory:
    present = _version_of(event)
    place = next(n for n, v in enumerate(table.versions) if v.until is None and v.name == event.name)
    former = table.versions[place]
    converts = converting(former.type, present.type)
    if same_type(former.type, present.type) or (
        converts and spark_type(former.type) == spark_type(present.type)
    ):
        # The lake's column stays as it is.
        version = replace(
            former,
            type=present.type,
            is_primary_key=present.is_primary_key,
            ordinal=present.ordinal,
        )
        return replace(table, versions=(*table.versions[:place], version, *table.versions[place + 1 :]))
    present = replace(present, before=place if converts else None)
    if case_key(former.lake_name) == case_key(present.name):
        table = _claim_name(table, present.name, present.since)
        return replace(table, versions=(*table.versions, present))
    # It still shares its name with another column.
    old_version = replace(former, until=present.since)
    table = replace(table, versions=(*table.versions[:place], old_version, *table.versions[place + 1 :]))
    return _append_version(table, present)


def _version_of(event: SchemaEvent, *, is_late: bool = False) -> ColumnVersion:
    name = str(event.name)
    return ColumnVersion(
        name=name,
        lake_name=name,
        type=ColumnType.from_json(str(event.value)),
        is_primary_key=event.is_primary_key,
        ordinal=event.ordinal,
        since=Bound(event.cycle, event.since),
        is_late=is_late,
        is_widened=event.change is SchemaChange.COLUMN_WIDENED,
    )


def _claim_name(table: ColumnHistory, name: str, since: Bound) -> ColumnHistory:
    """Set aside the version that has the name in the lake; names that differ only in case are equal."""
    names = {case_key(version.lake_name) for version in table.versions}
    versions = [
        _set_aside(version, since, names) if case_key(version.lake_name) == case_key(name) else version
        for version in table.versions
    ]
    return replace(table, versions=tuple(versions))


def _set_aside(version: ColumnVersion, since: Bound, names: set[str]) -> ColumnVersion:
    return replace(
        version,
        until=version.until or since,
        lake_name=_aside_name(version, names),
        past_names=(*version.past_names, version.lake_name),
    )


def _aside_name(version: ColumnVersion, names: set[str]) -> str:
    kind, words = version.type, []
    while kind.element is not None:
        words.append(kind.code)
        kind = kind.element
    name = "__".join([version.name, "_".join([*words, kind.code]).lower()])
    number = 2
    aside = name
    while case_key(aside) in names:
        aside, number = f"{name}_{number}", number + 1
    return aside


_CHANGES: Final[Mapping[SchemaChange, Callable[[ColumnHistory, SchemaEvent], ColumnHistory]]] = {
    SchemaChange.TABLE_ADDED: _add_table,
    SchemaChange.TABLE_DROPPED: lambda table, _: replace(table, is_watched=False, is_dropped=True),
    SchemaChange.TABLE_UNWATCHED: lambda table, _: replace(table, is_watched=False, is_dropped=False),
    SchemaChange.COLUMN_ADDED: _add_column,
    SchemaChange.COLUMN_DROPPED: _drop_column,
    # It may be another column of the same name, at another place.
    SchemaChange.COLUMN_RETYPED: lambda table, event: _without_place(
        _retype(table, event, is_convertible), event.name
    ),
    SchemaChange.COLUMN_WIDENED: lambda table, event: _retype(table, event, lambda *_: True),
    SchemaChange.COLUMN_REPLACED: lambda table, event: _without_place(
        _retype(table, event, lambda *_: False), event.name
    ),
    SchemaChange.COLUMN_CASE_VARIANT: lambda table, event: _append_version(table, _version_of(event)),
    SchemaChange.COLUMNS_PLACED: lambda table, event: replace(
        table, places=parse_stored(str(event.value), dict[str, int])
    ),
    SchemaChange.KEY_ORDERED: _ordering_key,
    SchemaChange.UNWATCHED_COLUMNS: lambda table, event: replace(
        table, unwatched=tuple(sorted(_names(event.value)))
    ),
    SchemaChange.GENERATED_COLUMNS: lambda table, event: replace(
        table, generated=tuple(sorted(_names(event.value)))
    ),
}
"""The effect of each change on the columns of its table."""
