"""Lines of key chains, and the completion of their changes, in order, starting from stored rows.

A line is a change, or a stored row of a table. All lines of rows that key changes connect form one chain;
every other row has its own chain.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.base.stored_texts import MISUNDERSTOOD, damage_of
from cdc_platform.model.rows.resolution import RowChange, RowId, RowTracker, Values
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.json_codec import NULL, read_members, write

STORED: Final = "stored"
"""Kind of a line with a stored row; it is not a whole row if a column is NULL."""
UNKNOWN: Final = "unknown"
"""Kind of a line whose unavailable columns are NULL in the table because their values are unknown."""
STORED_PLACE: Final = -2
UNKNOWN_PLACE: Final = -1
"""Ordinal of such lines, below those of all changes."""

KEY_CHAIN: Final = "key_chain"
"""Column that names a key chain by one of its keys."""
SOURCE_PLACE: Final = "source_place"
"""Column with the ordering key of a change in chains that are followed from the log; otherwise empty."""
LOGGED_MICROS: Final = "logged_micros"
"""Column with the commit time of changes of the log; NULL in all other lines."""
REST: Final = "rest"
"""Additional struct column: the other columns that the log has of a completed change."""

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
"""Columns of the log that describe a change."""
LINE: Final = (KEY_CHAIN, SOURCE_PLACE, LOGGED_MICROS, *CHANGE_COLUMNS)
LINE_ORDER: Final = ("table_name", KEY_CHAIN, SOURCE_PLACE, "ordinal")


@dataclass(frozen=True, slots=True)
class ChainChange:
    """A change of the log.

    ``nulls`` are the columns that the source did not send but that the log names with null.
    """

    change: RowChange
    nulls: tuple[str, ...]

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> "ChainChange":
        """Return the change of a row of the log.

        Raises:
            LakeDamaged: the platform does not write such a row.
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
        columns = values or {}
        nulls = tuple(name for name in unavailable if columns.pop(name, None) is not None)
        change = RowChange(
            table=line["table_name"],
            key=line["keys"] or "",
            mod_type=ModType(line["change_kind"].upper()),
            new_values=values,
            unavailable=unavailable,
            previous_key=line["previous_keys"],
            is_whole_row=line["is_whole_row"] or bool(unavailable),
        )
        return cls(change, nulls)

    def values_of(self, change: RowChange) -> str:
        """Return the values of the completed change in the log's form."""
        nulls = {name: NULL for name in self.nulls if name in change.unavailable}
        return write({**(change.new_values or {}), **nulls})


@dataclass(frozen=True)
class ChainCompleter:
    """Completer of Arrow batches of lines in `LINE_ORDER`; batches may divide a chain.

    It takes the columns `LINE` and `REST`, and returns the changes with `REST`, in the log's form.

    Args:
        columns: the columns of the log, in the order of the result.
        truncates: ordinals of the truncates of each table, ascending; chains that are followed from the log
            have these as lines.
        valid_since: when columns appeared or changed their type, by table and column; older values of the
            log do not belong to the current column.
    """

    columns: tuple[str, ...]
    truncates: Mapping[str, Sequence[int]]
    valid_since: Mapping[tuple[str, str], int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a batch of completed changes for each batch, in order."""
        follower = _ChainFollower(self)
        for batch in batches:
            yield self._complete(batch, follower)

    def _complete(self, batch: pa.RecordBatch, follower: "_ChainFollower") -> pa.RecordBatch:
        lines = zip(*(batch.column(name).to_pylist() for name in LINE), strict=True)
        is_incomplete = batch.column(REST).is_valid().to_pylist()
        places, completions = list[int](), list[tuple[str, list[str]]]()
        for place, line in enumerate(lines):
            completion = follower.take(dict(zip(LINE, line, strict=True)))
            if completion is not None and is_incomplete[place]:
                places.append(place)
                completions.append(completion)
        return self._to_changes(batch.take(pa.array(places, pa.int64())), completions)

    def _to_changes(
        self, changes: pa.RecordBatch, completions: Sequence[tuple[str, list[str]]]
    ) -> pa.RecordBatch:
        rest = changes.column(REST)
        arrays = {name: changes.column(name) for name in CHANGE_COLUMNS}
        arrays |= dict(zip((field.name for field in rest.type), rest.flatten(), strict=True))
        whole_rows = {
            "new_values": [values for values, _ in completions],
            "unavailable_columns": [unknown_names or None for _, unknown_names in completions],
            "is_whole_row": [not unknown_names for _, unknown_names in completions],
        }
        arrays |= {name: pa.array(values, arrays[name].type) for name, values in whole_rows.items()}
        return pa.RecordBatch.from_arrays([arrays[name] for name in self.columns], names=list(self.columns))


class _ChainFollower:
    """Follower of one key chain after the other."""

    def __init__(self, completer: ChainCompleter) -> None:
        self._completer = completer
        self._current: tuple[str, str] | None = None

    def take(self, line: Mapping[str, Any]) -> tuple[str, list[str]] | None:
        """Return the new values of a change that lacks some, and its columns that stay unresolved."""
        if (line["table_name"], line[KEY_CHAIN]) != self._current:
            self._begin(line)
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

    def _begin(self, line: Mapping[str, Any]) -> None:
        self._current = line["table_name"], line[KEY_CHAIN]
        self._stored: dict[RowId, Values] = {}
        self._tracker = RowTracker(self._stored)
        truncates = () if line[SOURCE_PLACE] else self._completer.truncates.get(line["table_name"], ())
        self._coming = list(reversed(truncates))

    def _follow(self, line: Mapping[str, Any]) -> tuple[str, list[str]] | None:
        while self._coming and self._coming[-1] < line["ordinal"]:
            self._coming.pop()
            self._tracker.take(RowChange(line["table_name"], "", ModType.TRUNCATE))
        entry = ChainChange.of(line)
        completion = self._tracker.take(self._as_of_now(entry.change, line[LOGGED_MICROS]))
        return (
            (entry.values_of(completion), list(completion.unavailable)) if entry.change.unavailable else None
        )

    def _as_of_now(self, change: RowChange, logged_micros: int | None) -> RowChange:
        """Return a change of the log without values of columns that have another type now."""
        if logged_micros is None or change.new_values is None:
            return change
        since = self._completer.valid_since
        values = {
            name: value
            for name, value in change.new_values.items()
            if since.get((change.table, name), 0) <= logged_micros
        }
        return replace(change, new_values=values)
