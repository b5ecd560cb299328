"""Arrived parts of transactions, by column, from notes on the messages of a split."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.sources.debezium.rows.plain_columns import PlainRun
from cdc_platform.sources.debezium.rows.snapshots import is_buffered_snapshot
from cdc_platform.sources.debezium.wire.message_contents import TransactionBegin, TransactionEnd
from cdc_platform.sources.debezium.wire.positions import commit_of, have_total_order, orders_of
from cdc_platform.sources.sound_rows import escape

NAME: Final = "name"
EVENTS: Final = "events"
FAULTS: Final = "faults"
TRANSACTIONS: Final = pa.schema(
    [
        (NAME, pa.string()),
        ("messages", pa.int64()),
        ("expected", pa.int64()),
        ("since_micros", pa.int64()),
        ("first_order", pa.string()),
        ("last_order", pa.string()),
        ("first_commit", pa.int64()),
        ("commit_lsn", pa.int64()),
        ("begun_origin", pa.string()),
        ("begun_at", pa.int64()),
        ("last_micros", pa.int64()),
        ("last_taken", pa.int64()),
        ("bounded_at", pa.int64()),
        ("has_events", pa.bool_()),
        ("has_sound_events", pa.bool_()),
        ("has_metadata", pa.bool_()),
    ]
)
"""Transactions, each once, by escaped name.

``messages`` counts each message once; ``since_micros`` is the commit time; ``first_commit`` is the first part
of ``first_order``; ``begun_origin`` and ``begun_at`` are the place of its BEGIN. ``last_taken`` and
``bounded_at`` are the numbers of messages that had arrived with its last message and with its last boundary.
``has_metadata`` means that its boundaries, or the orders of its events in it, have been sent.
"""
PLACES: Final = pa.schema(
    [
        (NAME, pa.string()),
        ("origin", pa.string()),
        ("position", pa.int64()),
        (EVENTS, pa.int64()),
        (FAULTS, pa.int64()),
    ]
)
"""First position of the messages of a transaction in a file or partition, and its rows from there.

The name is empty for rows that belong to no transaction.
"""
_NOTES: Final = pa.schema(
    [
        (NAME, pa.string()),
        ("origin", pa.string()),
        *((name, pa.int64()) for name in ("position", "number", "sent_micros")),
        *((name, pa.string()) for name in ("message_id", "order")),
        *((name, pa.int64()) for name in ("since", "begun_micros", "expected", "commit_lsn")),
        ("begun_origin", pa.string()),
        *((name, pa.int64()) for name in ("begun_at", "bounded_at", "events", "plain")),
        *((name, pa.bool_()) for name in ("is_sound", "has_metadata")),
    ]
)
_SUMMARY: Final = (
    *(("message_id", how) for how in ("count_distinct", "count")),
    *(("order", how) for how in ("min", "max")),
    ("since", "min"),
    *((name, "last") for name in ("begun_micros", "expected", "commit_lsn")),
    *((name, "first") for name in ("begun_origin", "begun_at")),
    *((name, "max") for name in ("sent_micros", "number", "bounded_at")),
    *((name, "sum") for name in ("events", "plain")),
    *((name, "any") for name in ("is_sound", "has_metadata")),
)
_MIN, _MAX = -(2**63), 2**63 - 1


class EventNote(NamedTuple):
    """An event, logical message or signal of a transaction, by its escaped name.

    ``message_id`` is the same for all events of one message and for its duplicates; ``order`` is the ordering
    key, None if unknown; ``events`` is 1 for an event, 0 for the others.
    """

    name: str
    origin: str
    position: int
    number: int
    sent_micros: int
    message_id: str
    order: str | None
    since: int | None
    events: int
    is_sound: bool
    has_metadata: bool


_Boundary = TransactionBegin | TransactionEnd


class TransactionNotes:
    """Collects notes on the messages of the transactions of a split."""

    def __init__(self) -> None:
        self._events: list[EventNote] = []
        self._boundaries: list[tuple[_Boundary, str, int, int, int]] = []
        self._runs: list[pa.Table] = []

    def add(self, note: EventNote) -> None:
        """Add a note."""
        self._events.append(note)

    def add_boundary(self, boundary: _Boundary, origin: str, position: int, number: int, micros: int) -> None:
        """Add a boundary and its place, as in `Arrival`; boundaries come in order of arrival."""
        self._boundaries.append((boundary, origin, position, number, micros))

    def add_run(self, run: PlainRun) -> None:
        """Add plain changes of transactions."""
        one, is_true = (pa.repeat(value, len(run)) for value in (1, True))
        columns = {
            NAME: run.transaction_ids,
            "origin": run.origins,
            "position": run.positions,
            "number": run.numbers,
            "sent_micros": run.sent_micros,
            "message_id": run.event_ids,
            "order": run.ordering_keys,
            "since": run.source_micros,
            "events": one,
            "plain": one,
            "is_sound": is_true,
        }
        self._runs.append(_table(columns))

    def table(self) -> pa.Table:
        """Return the notes; those on boundaries are in order of arrival."""
        tables = [_NOTES.empty_table(), *self._runs]
        if self._boundaries:
            tables.append(_of_boundaries(*zip(*self._boundaries, strict=True)))
        if self._events:
            tables.append(_table(dict(zip(EventNote._fields, zip(*self._events, strict=True), strict=True))))
        return pa.concat_tables(tables, promote_options="default")


def _of_boundaries(
    boundaries: Sequence[_Boundary],
    origins: Sequence[str],
    positions: Sequence[int],
    numbers: Sequence[int],
    sent_micros: Sequence[int],
) -> pa.Table:
    names = [escape(boundary.transaction_id) for boundary in boundaries]
    begins = [boundary if isinstance(boundary, TransactionBegin) else None for boundary in boundaries]
    ends = [None if isinstance(boundary, TransactionBegin) else boundary for boundary in boundaries]
    columns = {
        NAME: names,
        "origin": origins,
        "position": positions,
        "number": numbers,
        "sent_micros": sent_micros,
        "begun_micros": [begin and begin.micros for begin in begins],
        "expected": [end and end.event_count for end in ends],
        "commit_lsn": [end and end.lsn for end in ends],
        "begun_origin": [begin and origin for begin, origin in zip(begins, origins, strict=True)],
        "begun_at": [begin and position for begin, position in zip(begins, positions, strict=True)],
        "bounded_at": [
            None if is_buffered_snapshot(name) else number
            for name, number in zip(names, numbers, strict=True)
        ],
        "has_metadata": [True] * len(names),
    }
    return _table(columns)


@dataclass(frozen=True)
class SplitTransactions:
    """Transactions of a split.

    Args:
        transactions: the transactions, as `TRANSACTIONS`.
        events: number of events of each.
        plain: number of those that are plain changes.
        has_repetitions: whether an event of a transaction with plain changes may have arrived twice.
    """

    transactions: pa.Table
    events: pa.ChunkedArray
    plain: pa.ChunkedArray
    has_repetitions: bool

    @classmethod
    def of(cls, notes: pa.Table) -> "SplitTransactions":
        """Return the transactions of notes from `TransactionNotes`."""
        has_metadata = pc.or_(
            *(
                pc.fill_null(flags, False)
                for flags in (have_total_order(notes["order"]), notes["has_metadata"])
            )
        )
        place = _NOTES.get_field_index("has_metadata")
        summary = (
            notes.set_column(place, "has_metadata", has_metadata)
            .group_by(NAME, use_threads=False)
            .aggregate(_SUMMARY)
        )
        events, plain = (pc.fill_null(summary[f"{name}_sum"], 0) for name in ("events", "plain"))
        is_repeated = pc.less(summary["message_id_count_distinct"], summary["message_id_count"])
        has_repetitions = pc.any(pc.and_(is_repeated, pc.greater(plain, 0)), min_count=0).as_py()
        return cls(_transactions(summary), events, plain, has_repetitions)

    def records(self, names: Iterable[str]) -> list[int]:
        """Return the number of events of each transaction by name; 1 without metadata."""
        records = pc.if_else(self.transactions["has_metadata"], self.events, 1)
        places = pc.index_in(pa.array(names, pa.string()), value_set=self.transactions[NAME])
        counts: list[int] = records.take(places).to_pylist()
        return counts

    def by_name(self) -> dict[str, tuple[bool, int]]:
        """Return whether each transaction has metadata, and its number of plain changes, by name."""
        columns = self.transactions["has_metadata"], self.plain
        facts = zip(*(column.to_pylist() for column in columns), strict=True)
        return dict(zip(self.transactions[NAME].to_pylist(), facts, strict=True))


def _transactions(summary: pa.Table) -> pa.Table:
    first_orders = orders_of(summary["order_min"])
    commits = [None if order is None else commit_of(order) for order in first_orders.to_pylist()]
    columns = {
        NAME: summary[NAME],
        "messages": summary["message_id_count_distinct"],
        "expected": summary["expected_last"],
        "since_micros": pc.coalesce(summary["begun_micros_last"], summary["since_min"]),
        "first_order": first_orders,
        "last_order": pc.fill_null(orders_of(summary["order_max"]), ""),
        "first_commit": _numbers(commits),
        "commit_lsn": summary["commit_lsn_last"],
        "begun_origin": summary["begun_origin_first"],
        "begun_at": summary["begun_at_first"],
        "last_micros": summary["sent_micros_max"],
        "last_taken": summary["number_max"],
        "bounded_at": summary["bounded_at_max"],
        "has_events": pc.greater(pc.fill_null(summary["events_sum"], 0), 0),
        "has_sound_events": pc.fill_null(summary["is_sound_any"], False),
        "has_metadata": summary["has_metadata_any"],
    }
    return pa.table(columns, schema=TRANSACTIONS)


def places_of(notes: pa.Table, rows: Iterable[pa.Table]) -> pa.Table:
    """Return the places of a split as `PLACES`.

    Args:
        notes: notes from `TransactionNotes`.
        rows: rows of the split, as `PLACES` without positions.
    """
    tables = PLACES.empty_table(), notes.select([NAME, "origin", "position"]), *rows
    summary = (
        pa.concat_tables(tables, promote_options="default")
        .group_by([NAME, "origin"])
        .aggregate([("position", "min"), ("events", "sum"), ("faults", "sum")])
    )
    columns = [
        *(summary[name] for name in (NAME, "origin", "position_min")),
        *(pc.fill_null(summary[name], 0) for name in ("events_sum", "faults_sum")),
    ]
    return pa.Table.from_arrays(columns, schema=PLACES)


def _table(columns: Mapping[str, Any]) -> pa.Table:
    arrays = {name: _array(values, _NOTES.field(name).type) for name, values in columns.items()}
    return pa.table(arrays)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values.cast(kind)
    return _numbers(values) if kind == pa.int64() else pa.array(values, kind)


def _numbers(values: Sequence[int | None]) -> pa.Array:
    """Return numbers of 64 bits; larger ones, which only a damaged message states, become the largest."""
    try:
        return pa.array(values, pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        bounded = [None if value is None else max(_MIN, min(value, _MAX)) for value in values]
        return pa.array(bounded, pa.int64())
