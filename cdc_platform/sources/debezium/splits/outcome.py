"""Report of a task on its decoded split."""

import pickle
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final, Self, cast

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.stream.events import SourceMessage
from cdc_platform.sources.debezium.rows.state import DecoderState, StateUse
from cdc_platform.sources.debezium.transactions.transaction_buffer import (
    Admission,
    TransactionBuffer,
    earliest,
)
from cdc_platform.sources.debezium.transactions.transactions import NAME, PLACES

SPLIT: Final = "split"
ROWS: Final = "rows"
OUTCOME: Final = "outcome"
FREE: Final = "free"
SPLIT_BLOCKS: Final = pa.schema(
    [(SPLIT, pa.int64()), (ROWS, pa.binary()), (OUTCOME, pa.binary()), (FREE, pa.binary())]
)
"""Blocks of a split's rows, and one more with its outcome and the places of rows without a transaction.

Spark keeps the rows as octets until the transaction buffer decides; by column this would be expensive.
"""

FreeRow = tuple[str | None, str, int, bool]
"""Ordering key, origin and position of a row without a transaction, and whether it is a fault."""


def digest(name: str) -> bytes:
    """Return eight bytes for the name of a transaction, the same in all processes."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()


@dataclass(frozen=True)
class SplitLines:
    """Lines of a file in a split.

    Args:
        first_line: number of lines of the file before them.
        read_bytes: number of bytes of the file before them; 0 in a gzip.
        ends: bytes of the file up to the end of each line.
        is_cut: whether the file has more lines, in another split.
    """

    first_line: int
    read_bytes: int
    ends: "array[int]"
    is_cut: bool


@dataclass(frozen=True)
class SplitOutcome:
    """Outcome of one split, or of several consecutive splits.

    Args:
        transactions: arrived part of each transaction, as `TRANSACTIONS`.
        names: digests of the names of all transactions, even if their ends are unknown.
        places: places and numbers of distinct rows of each transaction, as `PLACES`.
        truncates: transaction, table and ordering key of truncates.
        notes: logical messages of each transaction, with origins and positions; "" has all others.
        messages: number of messages in the split.
        newest_micros: send time of the newest message.
        resume: positions of first halves that wait for their other half.
        state: final state of the decoder.
        use: parts of the initial state that the decoder has used.
        lines: lines that were read, by file.
    """

    transactions: pa.Table
    names: "array[int]"
    places: pa.Table
    truncates: Sequence[tuple[str, str, str]]
    notes: Mapping[str, Sequence[tuple[SourceMessage, str, int]]]
    messages: int
    newest_micros: int
    resume: Mapping[str, int]
    state: str
    use: StateUse
    lines: Mapping[str, SplitLines] = field(default_factory=dict)

    @property
    def end(self) -> DecoderState:
        """Final state of the decoder, with the parts that it has used."""
        state = DecoderState.from_json(self.state)
        state.use = self.use
        return state

    def after(self, messages: int) -> Self:
        """Return the outcome with the numbers of its messages after those of earlier splits."""
        places = {name: pc.add(self.transactions[name], messages) for name in ("last_taken", "bounded_at")}
        return replace(self, transactions=_with_columns(self.transactions, places))

    def to_bytes(self) -> bytes:
        """Return the octets for `from_bytes`, which are valid only within the cycle."""
        return pickle.dumps(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "SplitOutcome":
        """Return the outcome of octets from a task of this cycle."""
        return cast("SplitOutcome", pickle.loads(data))  # noqa: S301  written by our own task, never stored

    def admission(self, buffer: TransactionBuffer, *, has_metadata: bool) -> Admission:
        """Return what may pass; without transaction metadata, each event passes by itself."""
        if not has_metadata:
            return Admission(buffer.passed_until, resume=self.resume)
        admission = buffer.admit(self.transactions, self.places, self.newest_micros)
        notes = self.notes.get("", ())
        return admission.with_resume(
            {origin: position} for note, origin, position in notes if admission.holds_back(note.ordering_key)
        )

    def without_waiting(self, admission: Admission, free_rows: Iterable[FreeRow]) -> tuple[Self, Admission]:
        """Return the outcome without rows that wait one by one, and where to read these again."""
        rows = list(free_rows)
        resume = [{origin: position} for order, origin, position, _ in rows if admission.holds_back(order)]
        passed_places = [
            ("", origin, None, int(not is_fault), int(is_fault))
            for order, origin, _, is_fault in rows
            if not admission.holds_back(order)
        ]
        of_transactions = self.places.filter(pc.not_equal(self.places[NAME], ""))
        columns = list(map(list, zip(*passed_places, strict=True))) or [[]] * len(PLACES)
        places = pa.concat_tables([of_transactions, pa.table(columns, schema=PLACES)])
        return replace(self, places=places), admission.with_resume(resume)


def combined_outcome(outcomes: Sequence[SplitOutcome]) -> SplitOutcome:
    """Return the outcome of several splits that do not share transactions."""
    notes: defaultdict[str, list[tuple[SourceMessage, str, int]]] = defaultdict(list)
    lines: dict[str, SplitLines] = {}
    for outcome in outcomes:
        for name, some in outcome.notes.items():
            notes[name] += some
        for path, part in outcome.lines.items():
            lines[path] = _joined_lines(lines[path], part) if path in lines else part
    last = outcomes[-1]
    return SplitOutcome(
        transactions=pa.concat_tables(outcome.transactions for outcome in outcomes),
        names=sum((outcome.names for outcome in outcomes), array("Q")),
        places=pa.concat_tables(outcome.places for outcome in outcomes),
        truncates=[truncate for outcome in outcomes for truncate in outcome.truncates],
        notes=notes,
        messages=sum(outcome.messages for outcome in outcomes),
        newest_micros=max(outcome.newest_micros for outcome in outcomes),
        resume=earliest(outcome.resume for outcome in outcomes),
        state=last.state,
        use=last.use,
        lines=lines,
    )


def _with_columns(table: pa.Table, columns: Mapping[str, pa.ChunkedArray]) -> pa.Table:
    arrays = [columns.get(name, table[name]) for name in table.column_names]
    return pa.Table.from_arrays(arrays, schema=table.schema)


def _joined_lines(first: SplitLines, second: SplitLines) -> SplitLines:
    return SplitLines(first.first_line, first.read_bytes, first.ends + second.ends, second.is_cut)
