"""What the source says of its schema, now and at moments of the past."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cdc_platform.model.base.names import is_reserved_column
from cdc_platform.model.schema.table_schema import TableSchema


@dataclass(frozen=True)
class Look:
    """What the source says of its schema.

    ``is_exact`` is False when it no longer tells the schema of ``micros``, but only that of a later moment.
    ``unwatched`` has every table of the database with the columns that the change stream does not watch.
    ``watches_all`` tells that it watches each table from its making on. ``keyless`` are watched tables whose
    key has no column; ``tables`` has none of them. ``generated`` lists by table the generated columns outside
    the key, which no change stream sends. ``uncopied`` are tables that come up with it and may have
    had rows before, which no copy brings.
    """

    micros: int
    tables: tuple[TableSchema, ...]
    unwatched: Mapping[str, Sequence[str]]
    options: Mapping[str, str]
    is_exact: bool = True
    watches_all: bool = True
    uncopied: frozenset[str] = frozenset()
    keyless: tuple[str, ...] = ()
    generated: Mapping[str, Sequence[str]] = field(default_factory=dict)


def storable(look: Look) -> Look:
    """Return the look with the columns that no lake can have among those that are not watched."""
    unwatched = {name: tuple(names) for name, names in look.unwatched.items()}
    for table in look.tables:
        kept = storable_columns(table).columns
        if left_out := {column.name for column in table.columns if column not in kept}:
            unwatched[table.name] = tuple(sorted({*unwatched.get(table.name, ()), *left_out}))
    return replace(look, tables=tuple(map(storable_columns, look.tables)), unwatched=unwatched)


def storable_columns(table: TableSchema) -> TableSchema:
    """Return the table without the columns outside its key that no lake can have."""
    kept = (
        column for column in table.columns if column.is_primary_key or not is_reserved_column(column.name)
    )
    return replace(table, columns=tuple(kept))


@dataclass
class PastLooks:
    """Asks the source for its schema at moments of the past: for each once, and no more where it forgets.

    Of a pipeline that was down for longer than the source remembers, every other record could ask.
    """

    source: Callable[[int], Look]
    known: dict[int, Look] = field(default_factory=dict)
    forgotten: Look | None = None

    def __call__(self, micros: int) -> Look:
        """Return the schema at a moment; not exact, once the source has not told one."""
        if micros in self.known:
            return self.known[micros]
        if self.forgotten is not None:
            return self.forgotten
        found = self.source(micros)
        if found.is_exact:
            self.known[micros] = found
        else:
            self.forgotten = found
        return found
