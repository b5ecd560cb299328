"""Schema reads: the source's schema, now and at past moments."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cdc_platform.model.base.names import is_reserved_column
from cdc_platform.model.base.timestamps import OrderPlace
from cdc_platform.model.schema.table_schema import TableSchema


@dataclass(frozen=True)
class SchemaRead:
    """The source's schema at a moment.

    ``is_exact`` is False if the source no longer knows the schema of ``micros`` and returned a later one.
    ``unwatched`` has every table of the database with the columns that the change stream does not watch.
    ``watches_all`` means that the stream watches each table from its creation on. ``keyless`` are watched
    tables with a key without columns; ``tables`` does not include them. ``generated`` lists, by table, the
    generated columns outside the key, which no change stream sends. ``populated`` are tables that came up
    since the last read and may have had rows when they did. ``uncopied`` are tables that this read shows
    first, and that may have had rows before, which no copy brings.
    """

    micros: int
    tables: tuple[TableSchema, ...]
    unwatched: Mapping[str, Sequence[str]]
    options: Mapping[str, str]
    is_exact: bool = True
    watches_all: bool = True
    populated: frozenset[str] = frozenset()
    uncopied: frozenset[str] = frozenset()
    keyless: tuple[str, ...] = ()
    generated: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def place(self) -> OrderPlace:
        """The moment as a place in the order of records."""
        return self.micros, ""


def storable(schema_read: SchemaRead) -> SchemaRead:
    """Return the schema read with columns that no lake can have moved to the unwatched ones."""
    unwatched_columns = {name: tuple(names) for name, names in schema_read.unwatched.items()}
    for table in schema_read.tables:
        columns = storable_columns(table).columns
        if left_out := {column.name for column in table.columns if column not in columns}:
            unwatched_columns[table.name] = tuple(sorted({*unwatched_columns.get(table.name, ()), *left_out}))
    return replace(
        schema_read, tables=tuple(map(storable_columns, schema_read.tables)), unwatched=unwatched_columns
    )


def storable_columns(table: TableSchema) -> TableSchema:
    """Return the table without the columns outside its key that no lake can have."""
    columns = (
        column for column in table.columns if column.is_primary_key or not is_reserved_column(column.name)
    )
    return replace(table, columns=tuple(columns))


@dataclass
class PastSchemaReads:
    """Cache of the source's schema at past moments; once the source has forgotten one, it is not asked again.

    If a pipeline was down for longer than the source remembers, many records could cause a request.
    """

    source: Callable[[int], SchemaRead]
    by_micros: dict[int, SchemaRead] = field(default_factory=dict)
    forgotten: SchemaRead | None = None

    def __call__(self, micros: int) -> SchemaRead:
        """Return the schema at a moment; inexact after the source had forgotten one."""
        if micros in self.by_micros:
            return self.by_micros[micros]
        if self.forgotten is not None:
            return self.forgotten
        schema_read = self.source(micros)
        if schema_read.is_exact:
            self.by_micros[micros] = schema_read
        else:
            self.forgotten = schema_read
        return schema_read
