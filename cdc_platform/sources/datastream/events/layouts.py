"""Layouts: facts that events of one table and schema share, computed once."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.names import case_key
from cdc_platform.model.schema.observed_columns import DATABASE, types_without_columns
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.datastream.events.column_names import EVENT_ID, ROW_HASH, lake_names
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.settings.declarations import full_name
from cdc_platform.sources.datastream.settings.kinds import DOCUMENT_ID, SourceKind
from cdc_platform.sources.datastream.settings.policies import KeylessPolicy
from cdc_platform.sources.datastream.settings.table_names import table_name, unnamed_database
from cdc_platform.sources.datastream.values.rows import Columns

DATA: Final = "data"
"""Column with MongoDB's documents; if a document no longer exists when its update is read, the update has no
data, and the delete follows."""

ROWID: Final = "ROWID"
"""Member of a rollback's payload in place of its row; not a column of Oracle's table."""

NamePair: TypeAlias = tuple[str, str]
"""Name of a column in the lake and at the source."""

_TEXT: Final = ColumnType("STRING")
_KEYLESS_COLUMNS: Final = {KeylessPolicy.APPEND: EVENT_ID, KeylessPolicy.ROW_HASH: ROW_HASH}
_NO_TYPE: Final = "NULL"
"""Code of a column with only NULLs in a file without a schema: its type is still unknown."""
_KEY_FIELDS: Final = ("primary_keys", "replication_index")

_NAME_FIELDS: Final = ("database", "domain", "schema", "table", "collection", "object_name")
LAYOUT_MEMBERS: Final = (*_NAME_FIELDS, *_KEY_FIELDS)
"""Metadata that an event's layout depends on; _ABSENT has the values for missing members."""
_ABSENT: Final = (*[None] * len(_NAME_FIELDS), *[...] * len(_KEY_FIELDS))


@dataclass(frozen=True, slots=True)
class Layout:
    """Plan for reading the events of a table and schema.

    Args:
        table: the table's name.
        column_types: as in `SourceEvent`.
        keys: the key's columns, by their names in the lake; none if the table has no key.
        values: the other columns.
        missing_keys: key columns that the payload lacks, by their names in the metadata.
        protected: value columns in whose updates NULL stands for a value that was not sent.
        keyless: policy for a table without a key; None if it has one.
        sequence_column: column whose values order the events, if the user supplies one.
        source_name: unique name of the table at the source; empty if the metadata does not state it.
        no_column_types: as `column_types`, for events that show no columns.
        is_document: whether rows are documents of MongoDB, with their data in one column.
    """

    table: str
    column_types: str
    keys: tuple[NamePair, ...]
    values: tuple[NamePair, ...]
    missing_keys: tuple[NamePair, ...] = ()
    protected: tuple[NamePair, ...] = ()
    keyless: KeylessPolicy | None = None
    sequence_column: str | None = None
    source_name: str = ""
    no_column_types: str = "[]"
    is_document: bool = False


class Form(NamedTuple):
    """Facts that the events of a run share.

    Args:
        kind: their source.
        layout: the layout of their table and schema.
        mod_type: their operation.
        is_backfill: whether a backfill read their rows.
        note: how they were interpreted, if they contradict themselves.
    """

    kind: SourceKind
    layout: Layout
    mod_type: ModType
    is_backfill: bool
    note: str | None

    @property
    def is_removal(self) -> bool:
        """Whether the events delete rows."""
        return self.mod_type is ModType.DELETE


def layout_values(name: str, values: Sequence[Any]) -> Sequence[Any]:
    """Return what layouts depend on of the values of a member of the metadata: of keys, their columns."""
    if name not in _KEY_FIELDS:
        return values
    return [list(value) if isinstance(value, dict) else value for value in values]


def make_layout(
    kind: SourceKind, typed_columns: Columns, metadata: Mapping[str, Any], settings: DatastreamSettings
) -> Layout:
    """Return the common facts of events with these columns and the table and key of this metadata.

    Raises:
        RecordUnreadable: the metadata does not state the table or its key.
    """
    table = table_name(kind, metadata, settings.table_name)
    columns = dict(typed_columns)
    if kind is SourceKind.MONGODB and DOCUMENT_ID in columns:
        columns[DOCUMENT_ID] = _TEXT  # the identifiers of one collection may have several types
    listed_keys = _key_names(kind, metadata, settings, table)
    if kind is SourceKind.ORACLE and ROWID not in listed_keys:
        columns.pop(ROWID, None)
    find_column = name_finder(columns)
    key_names = [find_column(name) for name in listed_keys]
    key_columns = [name for name in key_names if name is not None]
    policy = settings.schema_policy_of(table)
    names = lake_names(columns, key_columns, policy)
    if settings.declared_key(table):
        # As declared, in any case of the file: all events of a table must have the same key.
        pairs = zip(key_names, listed_keys, strict=True)
        names = {**names, **{name: own for name, own in pairs if name is not None and names[name] == name}}
    gaps = [name for name, key_columns in zip(listed_keys, key_names, strict=True) if key_columns is None]
    values = tuple((names[name], name) for name in columns if name not in key_columns)
    keyless = None if listed_keys else settings.keyless_policy(table)
    is_document = kind is SourceKind.MONGODB and {DATA, DOCUMENT_ID}.issuperset(name for _, name in values)
    protected_names = settings.protected_columns(table)
    database = unnamed_database(kind, metadata, settings.table_name)
    return Layout(
        table=table,
        column_types=_column_types(names, columns, key_columns, keyless, database),
        keys=tuple(sorted((names[name], name) for name in key_columns)),
        values=values,
        missing_keys=tuple((own, name) for name, own in lake_names(gaps, gaps, policy).items()),
        protected=((DATA, DATA),)
        if is_document
        else tuple(pair for pair in values if pair[1] in protected_names),
        keyless=keyless,
        sequence_column=settings.sequence_column(table),
        source_name=full_name("", metadata),
        no_column_types=types_without_columns(database),
        is_document=is_document,
    )


def _key_names(
    kind: SourceKind, metadata: Mapping[str, Any], settings: DatastreamSettings, table: str
) -> Sequence[str]:
    """Return the columns of the key as named in the metadata; none for a table without a key.

    Raises:
        RecordUnreadable: neither the event nor a setting states whether its table has a key.
    """
    declaration = settings.declared_key(table)
    if declaration:
        return declaration
    for field in _KEY_FIELDS:
        key_fields = metadata.get(field)
        if not key_fields:
            continue
        if not isinstance(key_fields, list | tuple | Mapping) or not all(
            isinstance(name, str) for name in key_fields
        ):
            raise RecordUnreadable(f"`{field}` does not name columns, but says: {key_fields!r}")
        return tuple(key_fields)
    if kind is SourceKind.MONGODB:
        return (DOCUMENT_ID,)
    if not any(field in metadata for field in _KEY_FIELDS) and not settings.declares_keyless(table):
        raise RecordUnreadable(
            f"The event does not state whether `{table}` has a key; declare its key in `keys`, or state in "
            "`keyless` what to do with rows without one"
        )
    return ()


def name_finder(names: Collection[str]) -> Callable[[str], str | None]:
    """Return a function that finds the column of a name: the case of `replication_index` may differ."""

    # Few events need it.
    @cache
    def by_case() -> dict[str, list[str]]:
        matches: dict[str, list[str]] = {}
        for name in names:
            matches.setdefault(case_key(name), []).append(name)
        return matches

    def find(name: str) -> str | None:
        if name in names:
            return name
        matches = by_case().get(case_key(name), [])
        return matches[0] if len(matches) == 1 else None

    return find


def _column_types(
    names: Mapping[str, str],
    columns: Mapping[str, ColumnType],
    keys: Sequence[str],
    keyless: KeylessPolicy | None,
    database: str,
) -> str:
    """Return the JSON array for `SourceEvent.column_types`; key columns come first, in order.

    They state the database, if the table's name does not contain it.
    """
    entries = [
        (names[name], columns[name], name in keys)
        for name in dict.fromkeys((*keys, *columns))
        if columns[name].code != _NO_TYPE
    ]
    if keyless in _KEYLESS_COLUMNS:
        entries.insert(0, (_KEYLESS_COLUMNS[keyless], _TEXT, True))
    return json.dumps(
        [
            {"name": name, "type": kind.to_fields(), "is_primary_key": is_key, "ordinal_position": ordinal}
            | ({DATABASE: database} if database and is_key else {})
            for ordinal, (name, kind, is_key) in enumerate(entries, start=1)
        ],
        ensure_ascii=False,
        separators=(",", ":"),
    )


class Layouts:
    """Cache of layouts, by the identity of the events' columns and the metadata that a layout depends on."""

    _MAX_LAYOUTS: Final = 2_000

    def __init__(self, settings: DatastreamSettings) -> None:
        self._settings = settings
        self._layouts: dict[object, tuple[Columns, Layout]] = {}

    def of(self, kind: SourceKind, columns: Columns, metadata: Mapping[str, Any]) -> Layout:
        """Return the layout of events.

        Raises:
            RecordUnreadable: their metadata does not state the table or its key.
        """
        # By identity: hashing many columns takes long. The entry keeps them alive, so no others can get it.
        # The texts of metadata differ where values are equal, such as 0 and False.
        members = zip(LAYOUT_MEMBERS, map(metadata.get, LAYOUT_MEMBERS, _ABSENT), strict=True)
        key = id(columns), kind, repr([layout_values(name, (value,)) for name, value in members])
        entry = self._layouts.get(key)
        if entry is None:
            if len(self._layouts) >= self._MAX_LAYOUTS:
                self._layouts.clear()
            entry = self._layouts[key] = columns, make_layout(kind, columns, metadata, self._settings)
        return entry[1]
