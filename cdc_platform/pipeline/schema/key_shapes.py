"""Events of another key or database than their table: their rows would mix with its rows, or replace them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.observed_columns import (
    ObservedColumn,
    database_of,
    database_without_columns,
    declares_types_of,
    key_types,
    parse_column_types,
)
from cdc_platform.model.schema.widening import key_family
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.window_content import ShapeKey, TypedTable

Key = frozenset[tuple[str, str]]
"""Columns of a key with the families of their types; keys of different families do not compare as equal."""
_UNKNOWN: Final[Key] = frozenset()
"""The key that events without columns show: their rows may be those of any key."""


class KeyedTable(NamedTuple):
    """The key of a table, and its database; empty if that is unknown or in the table's name."""

    key: Key
    database: str

    def is_foreign_to(self, table: "KeyedTable") -> bool:
        """Return whether rows with this key, of this database, do not belong to a table."""
        # Oracle and SQL Server do not distinguish names of databases by case.
        names = {name.casefold() for name in (self.database, table.database) if name}
        return len(names) > 1 or self.key not in (_UNKNOWN, table.key)


def find_foreign_keys(
    pipeline: Pipeline, history: SchemaHistory, shapes: Mapping[TypedTable, str]
) -> Mapping[TypedTable, str]:
    """Return the shapes of events of other keys or databases than their tables, each with the reason.

    A new table gets the key and the database of its first event in the source's order: ``shapes`` has the
    ordering key of each shape's first event. ``history`` is the schema history before the window. Needs no
    Spark.
    """
    if pipeline.capabilities.comes_in_order:
        return {}
    keys: defaultdict[str, dict[str, KeyedTable]] = defaultdict(dict)
    for table, text in shapes:
        columns = parse_column_types(text)
        if columns:
            keys[table][text] = KeyedTable(key_of(columns), database_of(columns))
        elif database := database_without_columns(text):
            keys[table][text] = KeyedTable(_UNKNOWN, database)
    reasons: dict[TypedTable, str] = {}
    for table, by_text in keys.items():
        in_order = [by_text[text] for text in sorted(by_text, key=lambda text: (shapes[table, text], text))]
        owner = _known_key(history, table) or next(filter(_has_key, in_order), in_order[0])
        if not owner.database:
            # An event may leave it out.
            owner = owner._replace(database=next(filter(None, (shape.database for shape in in_order)), ""))
        reasons |= {
            (table, text): _reason(table, owner, shape)
            for text, shape in by_text.items()
            if shape.is_foreign_to(owner)
        }
    return reasons


def _has_key(keyed: KeyedTable) -> bool:
    return keyed.key != _UNKNOWN


def key_of(columns: Mapping[str, ObservedColumn]) -> Key:
    """Return the names of the key columns, each with the family of its type."""
    return frozenset((name, key_family(kind)) for name, kind in key_types(columns).items())


def _known_key(history: SchemaHistory, table: str) -> KeyedTable | None:
    table_columns = history.tables.get(table)
    if table_columns is None:
        return None
    columns = (version for version in table_columns.live_versions if version.is_primary_key)
    key = frozenset((version.name, key_family(version.type)) for version in columns)
    return KeyedTable(key, table_columns.database) if key else None


def _reason(table: str, owner: KeyedTable, keyed: KeyedTable) -> str:
    table_key, key = owner.key, keyed.key
    if keyed._replace(key=table_key).is_foreign_to(owner):
        return (
            f"The rows of `{table}` come from the database `{owner.database}`, and this one from "
            f"`{keyed.database}`. Declare a pipeline for each database, or name their tables apart by "
            "`{database}` in `table_name`; if it is one database that was renamed, or one table in shards, "
            "set `table_name` without it and replay"
        )
    expected, actual = (", ".join(sorted(name for name, _ in columns)) for columns in (table_key, key))
    if expected != actual:
        return (
            f"The key of `{table}` is {expected}, but the event's key is {actual}; declare in `keys` the "
            "columns that both have, with the table's names"
        )
    families = dict(key)
    name, family = min(table_key - key)
    return (
        f"In the key of `{table}`, `{name}` is {family}, but in the event it is {families[name]}: equal keys "
        "might count as two, or two keys as one; declare the table's type in `columns`, and replay"
    )


MAX_FITTING_SHAPES: Final = 200
"""Maximum number of shapes that one query names because tables have others, too; more of them are checked."""


def fitting_shapes(pipeline: Pipeline, shapes: Iterable[TypedTable]) -> list[TypedTable]:
    """Return those shapes of events whose declared types guarantee that their values fit their tables."""
    if not pipeline.capabilities.values_fit:
        return []
    tables = {table.name: table for table in pipeline.known_tables}
    return [shape for shape in sorted(shapes) if declares_types_of(tables.get(shape[0]), shape[1])]


def tables_to_check(
    shapes: Iterable[ShapeKey], fitting_types: Collection[TypedTable]
) -> Mapping[str, Sequence[str]]:
    """Return the tables with events whose values may not fit, each with column types of others, which do.

    Nearly always there are none, so queries do not depend on the number of tables.
    """
    fitting_shapes = {*fitting_types}
    tables = {table for table, _, _, text in shapes if table and (table, text) not in fitting_shapes}
    types_by_table: dict[str, list[str]] = {table: [] for table in sorted(tables)}
    others = (shape for shape in sorted(fitting_shapes) if shape[0] in types_by_table)
    for table, text in islice(others, MAX_FITTING_SHAPES):
        types_by_table[table].append(text)
    return types_by_table
