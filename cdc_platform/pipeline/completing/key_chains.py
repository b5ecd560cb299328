"""Changes that lack values, completed story by story: each in order, after what the table has of its rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.model.base.stored_texts import MISUNDERSTOOD, damage_of
from cdc_platform.model.rows.resolution import RowChange, RowId, Story, Values
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.json_codec import NULL, read_members, write_members

STORED: Final = "stored"
"""Kind of a line that has what the table has of the row."""
UNKNOWN: Final = "unknown"
"""Kind of a line whose unavailable columns are those that the table has as NULL for want of a value."""
STORED_PLACE: Final = -2
UNKNOWN_PLACE: Final = -1
"""Ordinals of such lines: below all of changes."""
STORY: Final = "story"
"""Rows whose keys change belong to one story with those whose keys they have had; it has the key of one."""
REST: Final = "rest"
"""What a line has besides, one struct: of a change to be completed all that the log is to have of it."""

TOLD: Final = (
    "table_name",
    "keys",
    "previous_keys",
    "ordinal",
    "change_kind",
    "new_values",
    "unavailable_columns",
    "is_whole_row",
)
"""What of the log tells what a change is."""
LINE: Final = (STORY, *TOLD)


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A change of the log.

    ``nulls`` are the columns that the source did not send, and that the log names all the same, with null.
    """

    change: RowChange
    nulls: tuple[str, ...]

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> "LoggedChange":
        """Return the change of a row of the log, of which `previous_keys` may be left out.

        Raises:
            LakeDamaged: the row is none that the platform writes.
        """
        try:
            return cls._of(line)
        except MISUNDERSTOOD as error:
            raise damage_of(error, LOG, f"a change of {line['table_name']} {line['keys']}") from error

    @classmethod
    def _of(cls, line: Mapping[str, Any]) -> "LoggedChange":
        text = line["new_values"]
        values = None if text is None else read_members(text)
        unavailable = tuple(line["unavailable_columns"] or ())
        named = values or {}
        nulls = tuple(name for name in unavailable if named.pop(name, None) is not None)
        change = RowChange(
            table=line["table_name"],
            key=line["keys"] or "",
            mod_type=ModType(line["change_kind"].upper()),
            new_values=values,
            unavailable=unavailable,
            previous_key=line.get("previous_keys"),
            is_whole_row=line["is_whole_row"] or bool(unavailable),
        )
        return cls(change, nulls)

    def values_of(self, done: RowChange) -> str:
        """Return the values of the completed change as the log has them."""
        nulls = {name: NULL for name in self.nulls if name in done.unavailable}
        return write_members({**(done.new_values or {}), **nulls})


class _Teller:
    """Follows one story after the other."""

    def __init__(self, truncates: Mapping[str, Sequence[int]]) -> None:
        self._truncates = truncates
        self._current: tuple[str, str] | None = None

    def take(self, line: Mapping[str, Any]) -> tuple[str, list[str]] | None:
        """Return new values of a change that lacks some, and the columns that stay unresolved."""
        if (line["table_name"], line[STORY]) != self._current:
            self._begin(line["table_name"], line[STORY])
        row_id = (line["table_name"], line["keys"])
        if line["change_kind"] == STORED:
            self._stored[row_id] = read_members(line["new_values"])
        elif line["change_kind"] == UNKNOWN:
            unknown = line["unavailable_columns"]
            kept = {name: value for name, value in self._stored[row_id].items() if name not in unknown}
            self._stored[row_id] = kept
        else:
            return self._follow(line)
        return None

    def _begin(self, table: str, story: str) -> None:
        self._current = table, story
        self._stored: dict[RowId, Values] = {}
        self._story = Story(self._stored)
        self._coming = list(reversed(self._truncates.get(table, ())))

    def _follow(self, line: Mapping[str, Any]) -> tuple[str, list[str]] | None:
        while self._coming and self._coming[-1] < line["ordinal"]:
            self._coming.pop()
            self._story.take(RowChange(line["table_name"], "", ModType.TRUNCATE))
        logged = LoggedChange.of(line)
        done = self._story.take(logged.change)
        return (logged.values_of(done), list(done.unavailable)) if logged.change.unavailable else None


@dataclass(frozen=True)
class Stories:
    """Completes Arrow batches of changes, sorted by table, story and ordinal; the batches may part a story.

    Takes columns `LINE` and `REST`, and returns the changes that have the latter, as the log has them.

    Args:
        columns: the columns of the log, in the order of the result.
        truncates: ordinals of the truncates of each table, ascending.
    """

    columns: tuple[str, ...]
    truncates: Mapping[str, Sequence[int]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a batch of completed changes for each batch, row after row."""
        teller = _Teller(self.truncates)
        for batch in batches:
            yield self._completed(batch, teller)

    def _completed(self, batch: pa.RecordBatch, teller: _Teller) -> pa.RecordBatch:
        lines = zip(*(batch.column(name).to_pylist() for name in LINE), strict=True)
        told = [teller.take(dict(zip(LINE, line, strict=True))) for line in lines]
        wanted = batch.column(REST).is_valid().to_pylist()
        found = [(place, done) for place, done in enumerate(told) if done is not None and wanted[place]]
        places, done = [place for place, _ in found], [one for _, one in found]
        taken = batch.take(pa.array(places, pa.int64()))
        rest = taken.column(REST)
        arrays = {name: taken.column(name) for name in TOLD}
        arrays |= dict(zip((field.name for field in rest.type), rest.flatten(), strict=True))
        arrays |= {
            "new_values": _like(batch, "new_values", [values for values, _ in done]),
            "unavailable_columns": _like(batch, "unavailable_columns", [left or None for _, left in done]),
            "is_whole_row": _like(batch, "is_whole_row", [not left for _, left in done]),
        }
        return pa.RecordBatch.from_arrays([arrays[name] for name in self.columns], names=list(self.columns))


def _like(batch: pa.RecordBatch, name: str, values: list[Any]) -> pa.Array:
    return pa.array(values, batch.schema.field(name).type)
