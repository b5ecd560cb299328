"""A source whose schema changes between its transactions, in plain Python, and strategies for its life."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st

from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema
from cdc_platform.model.stream.records import ModType, ValueCaptureType
from cdc_platform_tests.support.history import JsonValue, RawRow, column_types_json
from cdc_platform_tests.support.pipelines import START, data_change

STEP: Final = 1_000_000
"""Microseconds between two steps of a life."""
KEYS: Final = ("1", "2", "3")
NAMES: Final = ("a", "b", "c")
KINDS: Final = ("add", "drop", "retype", "watch")
TYPES: Final = ("STRING", "BYTES", "INT64")
CAPTURES: Final = (
    ValueCaptureType.OLD_AND_NEW_VALUES,
    ValueCaptureType.NEW_VALUES,
    ValueCaptureType.NEW_ROW,
    ValueCaptureType.NEW_ROW_AND_OLD_VALUES,
)
PARTIAL_CAPTURES: Final = CAPTURES[:2]

Row = dict[str, JsonValue]


@dataclass
class EvolvingSource:
    """A table's columns and rows; `past` has both after each step, `records` what the stream sends.

    `unwatched` are the columns that the stream does not watch, and `left` those that it has ever not watched.
    """

    name: str = "notes"
    columns: dict[str, str] = field(default_factory=lambda: {"a": "STRING"})
    rows: dict[str, Row] = field(default_factory=dict)
    step: int = 0
    past: list[tuple[dict[str, str], dict[str, Row]]] = field(default_factory=list)
    records: list[tuple[int, RawRow]] = field(default_factory=list)
    unwatched: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    past_unwatched: list[set[str]] = field(default_factory=list)

    @property
    def now_micros(self) -> int:
        """When the current step happens."""
        return START + self.step * STEP

    def end_step(self) -> None:
        """Remember the state, and let time pass."""
        self.past.append((dict(self.columns), {key: dict(row) for key, row in self.rows.items()}))
        self.past_unwatched.append(set(self.unwatched))
        self.step += 1

    def state_at(self, micros: int) -> tuple[dict[str, str], dict[str, Row]]:
        """Return columns and rows as they were."""
        return self.past[(micros - START) // STEP]

    def schema_at(self, micros: int) -> TableSchema:
        """Return the table as the source describes it."""
        columns, _ = self.state_at(micros)
        return as_schema(self.name, columns)

    def read_schema(self, micros: int) -> SchemaRead:
        """Return the result of a schema read."""
        unwatched = self.past_unwatched[(micros - START) // STEP]
        schema = self.schema_at(micros)
        watched = tuple(column for column in schema.columns if column.name not in unwatched)
        named = {self.name: sorted(unwatched)} if unwatched else {}
        return SchemaRead(micros, (TableSchema(self.name, watched),), named, {})

    def typed_rows_at(self, micros: int) -> list[dict[str, Any]]:
        """Return the rows as the lake must have them, without columns that the stream has not watched."""
        columns, rows = self.state_at(micros)
        names = [name for name in columns if name not in self.left]
        return [
            {"id": int(key), **{name: typed(columns[name], row[name]) for name in names}}
            for key, row in sorted(rows.items())
        ]

    def alter(self, kind: str, name: str, code: str) -> None:
        """Add, drop, retype or (un)watch a column, where that is possible; values follow as in Spanner."""
        previous = self.columns.get(name)
        if kind == "watch" and previous is not None:
            self.unwatched ^= {name}
            self.left.add(name)
        elif kind == "add" and previous is None:
            self.columns[name] = code
            for row in self.rows.values():
                row[name] = None
        elif kind == "drop" and previous is not None:
            del self.columns[name]
            self.unwatched.discard(name)
            for row in self.rows.values():
                del row[name]
        elif kind == "retype" and previous in {"STRING", "BYTES"}:
            self.columns[name] = "BYTES" if previous == "STRING" else "STRING"
            for row in self.rows.values():
                row[name] = _converted(previous, row[name])

    def write(self, key: str, number: int, capture: ValueCaptureType, named: tuple[str, ...]) -> None:
        """Insert, update or delete a row, and let the change stream record it."""
        old = self.rows.get(key)
        names = tuple(name for name in named if name in self.columns)
        if old is None:
            self.rows[key] = {name: value_of(code, number) for name, code in self.columns.items()}
            self._record(ModType.INSERT, key, self.rows[key], capture)
        elif number % 5 == 0 or not names:
            del self.rows[key]
            self._record(ModType.DELETE, key, {}, capture)
        else:
            changed = {name: value_of(self.columns[name], number) for name in names}
            old.update(changed)
            shown = changed if capture in PARTIAL_CAPTURES else old
            self._record(ModType.UPDATE, key, shown, capture)

    def _record(
        self, mod_type: ModType, key: str, shown: Mapping[str, JsonValue], capture: ValueCaptureType
    ) -> None:
        shown = {name: value for name, value in shown.items() if name not in self.unwatched}
        if mod_type is ModType.UPDATE and not shown:
            return
        row = data_change(
            self.name,
            mod_type,
            ({"id": key}, dict(shown)),
            at_micros=self.now_micros,
            transaction=f"{self.name}-{self.step}-{key}",
            capture=capture,
        )
        types = column_types_json(as_schema(self.name, self.columns), frozenset(shown))
        self.records.append((self.now_micros, {**row, "column_types": types}))


def as_schema(name: str, columns: Mapping[str, str]) -> TableSchema:
    """Return a table with the key `id` and these columns."""
    values = (
        Column(column, ColumnType(code), is_primary_key=False, ordinal=number)
        for number, (column, code) in enumerate(columns.items(), start=2)
    )
    return TableSchema(name, (Column("id", ColumnType("INT64"), is_primary_key=True, ordinal=1), *values))


def value_of(code: str, number: int) -> JsonValue:
    """Return a value of a type as records write it; some are NULL."""
    if number % 7 == 0:
        return None
    text = f"v{number}"
    return {"STRING": text, "BYTES": base64.b64encode(text.encode()).decode(), "INT64": str(number)}[code]


def typed(code: str, value: JsonValue) -> Any:
    """Return the value as the lake has it."""
    if value is None or code == "STRING":
        return value
    return int(str(value)) if code == "INT64" else base64.b64decode(str(value))


def _converted(code: str, value: JsonValue) -> JsonValue:
    if value is None:
        return None
    if code == "STRING":
        return base64.b64encode(str(value).encode()).decode()
    return base64.b64decode(str(value)).decode()


@st.composite
def lives(draw: st.DrawFn, max_steps: int = 14) -> tuple[EvolvingSource, list[int]]:
    """A source that has lived, and the moments up to which it is read; the last one is its end.

    Something was written at each of these: a cycle without changes does not look at the source's schema.
    """
    source = EvolvingSource()
    gone: dict[str, str] = {}
    steps = draw(st.integers(4, max_steps))
    for step in range(steps):
        if step in {0, steps - 1} or draw(st.integers(0, 2)):
            named = tuple(draw(st.sets(st.sampled_from(NAMES), min_size=1)))
            number = draw(st.integers(1, 60))
            source.write(draw(st.sampled_from(KEYS)), number, draw(st.sampled_from(CAPTURES)), named)
        else:
            kind, name = draw(st.sampled_from(KINDS)), draw(st.sampled_from(NAMES))
            # Dropped and added again unchanged, or as Spanner would convert it: nothing may show it.
            code = draw(st.sampled_from(["STRING", "BYTES"] if gone.get(name) == "INT64" else TYPES))
            if gone.get(name) in {"STRING", "BYTES"}:
                code = "INT64"
            gone |= {name: source.columns[name]} if kind == "drop" and name in source.columns else {}
            source.alter(kind, name, code)
        source.end_step()
    written = [at for at, _ in source.records]
    ends = draw(st.sets(st.sampled_from(written), max_size=1)) | {written[-1]}
    return source, sorted(ends)
