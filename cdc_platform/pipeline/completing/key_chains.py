"""Changes that lack values, completed by key chain: in order, after what the table has of their rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.model.base.stored_texts import MISUNDERSTOOD, damage_of
from cdc_platform.model.rows.resolution import RowChange, RowId, RowTracker, Values
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.json_codec import NULL, read_members, write_members

STORED: Final = "stored"
"""Kind of a line that has what the table has of the row."""
UNKNOWN: Final = "unknown"
"""Kind of a line whose unavailable columns are those that the table has as NULL for want of a value."""
STORED_PLACE: Final = -2
UNKNOWN_PLACE: Final = -1
"""Ordinals of such lines: below all of changes."""
KEY_CHAIN: Final = "key_chain"
"""Rows whose keys change belong to one key chain with those whose keys they have had; named by one key."""
REST: Final = "rest"
"""Further column of a line, a struct: all that the log is to have of a change that is completed."""

CHANGE_COLUMNS: Final = (
    "table_name",
    "keys",
    "previous_keys",
    "ordinal",
    "change_kind",
    "new_values",
    "unavailable_columns",
    "is_whole_row",
)
"""Columns of the log that make up a change."""
LINE: Final = (KEY_CHAIN, *CHANGE_COLUMNS)


@dataclass(frozen=True, slots=True)
class ChainChange:
    """A change of the log.

    ``nulls`` are the columns that the source did not send, and that the log names all the same, with null.
    """

    change: RowChange
    nulls: tuple[str, ...]

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> "ChainChange":
        """Return the change of a row of the log, of which `previous_keys` may be left out.

        Raises:
            LakeDamaged: the row is none that the platform writes.
        """
        try:
            return cls._of(line)
        except MISUNDERSTOOD as error:
            raise damage_of(error, LOG, f"a change of {line['table_name']} {line['keys']}") from error

    @classmethod
    def _of(cls, line: Mapping[str, Any]) -> "ChainChange":
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

    def values_of(self, completed: RowChange) -> str:
        """Return the values of the completed change as the log has them."""
        nulls = {name: NULL for name in self.nulls if name in completed.unavailable}
        return write_members({**(completed.new_values or {}), **nulls})


class _ChainFollower:
    """Follows one key chain after the other."""

    def __init__(self, truncates: Mapping[str, Sequence[int]]) -> None:
        self._truncates = truncates
        self._current: tuple[str, str] | None = None

    def take(self, line: Mapping[str, Any]) -> tuple[str, list[str]] | None:
        """Return new values of a change that lacks some, and the columns that stay unresolved."""
        if (line["table_name"], line[KEY_CHAIN]) != self._current:
            self._begin(line["table_name"], line[KEY_CHAIN])
        row_id = (line["table_name"], line["keys"])
        if line["change_kind"] == STORED:
            self._stored[row_id] = read_members(line["new_values"])
        elif line["change_kind"] == UNKNOWN:
            unknown = line["unavailable_columns"]
            values = {name: value for name, value in self._stored[row_id].items() if name not in unknown}
            self._stored[row_id] = values
        else:
            return self._follow(line)
        return None

    def _begin(self, table: str, chain: str) -> None:
        self._current = table, chain
        self._stored: dict[RowId, Values] = {}
        self._tracker = RowTracker(self._stored)
        self._coming = list(reversed(self._truncates.get(table, ())))

    def _follow(self, line: Mapping[str, Any]) -> tuple[str, list[str]] | None:
        while self._coming and self._coming[-1] < line["ordinal"]:
            self._coming.pop()
            self._tracker.take(RowChange(line["table_name"], "", ModType.TRUNCATE))
        logged = ChainChange.of(line)
        completed = self._tracker.take(logged.change)
        return (
            (logged.values_of(completed), list(completed.unavailable)) if logged.change.unavailable else None
        )


@dataclass(frozen=True)
class ChainCompleter:
    """Completes Arrow batches of changes, sorted by table, key chain and ordinal; batches may divide a chain.

    Takes columns `LINE` and `REST`, and returns the changes that have the latter, as the log has them.

    Args:
        columns: the columns of the log, in the order of the result.
        truncates: ordinals of the truncates of each table, ascending.
    """

    columns: tuple[str, ...]
    truncates: Mapping[str, Sequence[int]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a batch of completed changes for each batch, row after row."""
        follower = _ChainFollower(self.truncates)
        for batch in batches:
            yield self._completed(batch, follower)

    def _completed(self, batch: pa.RecordBatch, follower: _ChainFollower) -> pa.RecordBatch:
        lines = zip(*(batch.column(name).to_pylist() for name in LINE), strict=True)
        completions = [follower.take(dict(zip(LINE, line, strict=True))) for line in lines]
        is_asked = batch.column(REST).is_valid().to_pylist()
        completed = [
            (place, completed_changes)
            for place, completed_changes in enumerate(completions)
            if completed_changes is not None and is_asked[place]
        ]
        places, completed_changes = (
            [place for place, _ in completed],
            [completion for _, completion in completed],
        )
        changes = batch.take(pa.array(places, pa.int64()))
        rest = changes.column(REST)
        arrays = {name: changes.column(name) for name in CHANGE_COLUMNS}
        arrays |= dict(zip((field.name for field in rest.type), rest.flatten(), strict=True))
        arrays |= {
            "new_values": _like(batch, "new_values", [values for values, _ in completed_changes]),
            "unavailable_columns": _like(
                batch, "unavailable_columns", [unresolved or None for _, unresolved in completed_changes]
            ),
            "is_whole_row": _like(
                batch, "is_whole_row", [not unresolved for _, unresolved in completed_changes]
            ),
        }
        return pa.RecordBatch.from_arrays([arrays[name] for name in self.columns], names=list(self.columns))


def _like(batch: pa.RecordBatch, name: str, values: list[Any]) -> pa.Array:
    return pa.array(values, batch.schema.field(name).type)
