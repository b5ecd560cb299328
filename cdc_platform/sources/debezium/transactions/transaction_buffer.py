"""Admission of transactions to the log: whole ones that were committed before all others."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.base.timestamps import is_moment
from cdc_platform.model.stream.files import WaitingTransaction
from cdc_platform.sources.debezium.rows.snapshots import BUFFERED, is_buffered_snapshot
from cdc_platform.sources.debezium.transactions.progress import PassedUntil
from cdc_platform.sources.debezium.transactions.transactions import NAME

_CLOCKS_DIFFER_MS: Final = 86_400_000
"""Time by which the clock of a source may be ahead of the platform's."""
_LEAST: Final = -(2**63)
_COMMITTED, _IS_REPEATED, _IS_WHOLE, _WAITS = "committed_ms", "is_repeated", "is_whole", "waits"
"""Columns that judging adds to transactions."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Arrived transactions that may enter the log.

    Args:
        until: the last transaction that has passed so far.
        excluded: transactions that wait, and those that were committed after one of them.
        limit: ordering key from which on events without a transaction must wait.
        faults: reasons why transactions must not enter the log, by name.
        resume: position from which each origin must be read again; all others have been read.
        waiting: the transactions that hold back later ones.
        again_since_micros: commit time of the first transaction that seems to have passed before, or None.
    """

    until: PassedUntil
    excluded: frozenset[str] = frozenset()
    limit: str | None = None
    faults: Mapping[str, str] = field(default_factory=dict)
    resume: Mapping[str, int] = field(default_factory=dict)
    waiting: tuple[WaitingTransaction, ...] = ()
    again_since_micros: int | None = None

    def holds_back(self, ordering_key: str | None) -> bool:
        """Return whether an event without a transaction must wait."""
        return ordering_key is not None and self.limit is not None and ordering_key >= self.limit

    def with_resume(self, places: Iterable[Mapping[str, int]]) -> "Admission":
        """Return the same with additional positions from which origins must be read again."""
        return replace(self, resume=earliest([self.resume, *places]))


@dataclass(frozen=True)
class TransactionBuffer:
    """Transaction buffer: lets whole transactions pass, up to the first incomplete one.

    A connector emits transactions one after the other, in commit order. If one is incomplete, earlier ones
    may pass, and the next cycle reads the rest again.

    Partitions of topics are read independently, so the end of a transaction may be read before its events.
    The buffer then waits for these until it is certain that they will not come.

    Args:
        is_one_stream: whether all messages arrive in the order in which the connector emitted them, so an
            incomplete transaction that has ended stays incomplete.
        passed_until: the last `Admission.until`; a transaction that is not after it has passed before and was
            sent again, maybe without its beginning.
        patience_micros: an incomplete transaction is given up once a message was sent this long after its
            last one; None means never.
        read_micros: time of the cycle's read; None if unknown.
    """

    is_one_stream: bool
    passed_until: PassedUntil = field(default_factory=PassedUntil)
    patience_micros: int | None = None
    read_micros: int | None = None

    def admit(self, transactions: pa.Table, places: pa.Table, newest_micros: int = 0) -> Admission:
        """Return the transactions that may pass, and the positions from which to read the rest again.

        Args:
            transactions: the arrived part of each transaction, as `TRANSACTIONS`.
            places: where their messages are, as `PLACES`.
            newest_micros: send time of the newest message.
        """
        notes = self._judge(transactions, newest_micros)
        open_transactions = notes.filter(notes[_WAITS])
        limit = pc.min(open_transactions["first_order"]).as_py()
        is_excluded = pc.or_(notes[_WAITS], _is_behind(notes, limit, open_transactions))
        names, rest = notes.filter(is_excluded)[NAME], notes.filter(pc.invert(is_excluded))
        is_partial = pc.and_(rest["has_metadata"], pc.invert(rest[_IS_WHOLE]))
        partial = rest.filter(is_partial).to_pylist()
        faults = {transaction[NAME]: self._fault(transaction) for transaction in partial}
        repeats = notes.filter(pc.and_(notes[_IS_REPEATED], pc.invert(notes[_WAITS])))
        return Admission(
            self._until(rest),
            frozenset(names.to_pylist()),
            limit,
            {name: fault for name, fault in faults.items() if fault is not None},
            _first_positions(places.filter(pc.is_in(places[NAME], value_set=names.combine_chunks()))),
            _as_waiting(open_transactions.sort_by("last_taken")),
            _first_moment(repeats["since_micros"]),
        )

    def _judge(self, transactions: pa.Table, newest_micros: int) -> pa.Table:
        """Return transactions with their commit times, and whether they are whole, repeated, and wait."""
        expected, has_metadata = transactions["expected"], transactions["has_metadata"]
        is_buffered = pc.starts_with(transactions[NAME], BUFFERED)
        committed_ms = pc.if_else(
            is_buffered, 0, pc.divide(pc.fill_null(transactions["since_micros"], 0), 1000)
        )
        is_repeated = self._is_repeated(transactions, committed_ms)
        is_whole = pc.fill_null(pc.greater_equal(transactions["messages"], expected), False)
        if self.is_one_stream:
            is_over = pc.and_(pc.invert(is_buffered), _is_over(transactions))
            lacks = pc.and_(pc.is_null(expected), pc.invert(is_over))
        else:
            lacks = pc.invert(pc.or_(is_repeated, is_whole))
        waits = pc.and_(has_metadata, lacks)
        if self.patience_micros is not None:
            given_up_before = max(newest_micros - self.patience_micros, _LEAST)
            waits = pc.and_(waits, pc.greater_equal(transactions["last_micros"], given_up_before))
        columns = {_COMMITTED: committed_ms, _IS_REPEATED: is_repeated, _IS_WHOLE: is_whole, _WAITS: waits}
        for name, column in columns.items():
            transactions = transactions.append_column(name, column)
        return transactions

    def _is_repeated(self, transactions: pa.Table, committed_ms: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return whether each has passed before: it is not after the last one, nor committed later.

        One that is before it but was committed later is from a server that restarted its positions.
        """
        until, last_order = self.passed_until, transactions["last_order"]
        is_before = pc.and_(pc.not_equal(last_order, ""), pc.less_equal(last_order, until.ordering_key))
        is_repeated = pc.coalesce(pc.less_equal(transactions["commit_lsn"], until.commit_lsn), is_before)
        if not until.committed_ms:
            return is_repeated
        return pc.and_(is_repeated, pc.less_equal(committed_ms, until.committed_ms))

    def _until(self, transactions: pa.Table) -> PassedUntil:
        """Return the last transaction that has passed, after more of them.

        A part of a transaction that has only faulty events, or one that was committed after it was read, does
        not count, since its position would make all later transactions look repeated.
        """
        counts = pc.or_(pc.invert(transactions["has_events"]), transactions["has_sound_events"])
        counts = pc.or_(counts, transactions[_IS_WHOLE])
        if self.read_micros is not None:
            latest_ms = self.read_micros // 1000 + _CLOCKS_DIFFER_MS
            counts = pc.and_(counts, pc.less_equal(transactions[_COMMITTED], latest_ms))
        rows, until = transactions.filter(counts), self.passed_until
        newest = (pc.max(rows[name]).as_py() for name in ("last_order", "commit_lsn", _COMMITTED))
        last_order, commit_lsn, committed_ms = newest
        return replace(
            until,
            ordering_key=max(until.ordering_key, last_order or ""),
            commit_lsn=max(until.commit_lsn, -1 if commit_lsn is None else commit_lsn),
            committed_ms=max(until.committed_ms, committed_ms or 0),
        )

    def _fault(self, transaction: Mapping[str, Any]) -> str | None:
        """Return why an incomplete transaction must not enter the log; None if it already has."""
        name, messages, expected = (transaction[field] for field in (NAME, "messages", "expected"))
        is_repeated = transaction[_IS_REPEATED]
        if is_repeated and is_buffered_snapshot(name):
            return None  # rows that lag behind its end
        total = "an unknown number of" if expected is None else str(expected)
        if is_repeated and (transaction["begun_at"] is None or not self.is_one_stream):
            # The log omits the events that it has already; the others came too late to be recognised, or are
            # in quarantine with the transaction.
            return (
                f"It comes again with a part of its transaction {name}, which has passed before: "
                f"{messages} of {total} events have come"
            )
        missing_end = "; its END is missing" if expected is None else ""
        return (
            f"Its transaction {name} has {total} events according to the connector, of which "
            f"{messages} have come{missing_end}"
        )


def earliest(all_places: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the first position of each origin."""
    first: dict[str, int] = {}
    for places in all_places:
        for origin, position in places.items():
            first[origin] = min(position, first.get(origin, position))
    return first


def _is_over(transactions: pa.Table) -> pa.Array:
    """Return whether each transaction of one stream is over because a later one has arrived after it.

    In one stream each transaction ends before the next begins. A repeated transaction that was committed
    earlier proves nothing; and if there is nothing to lose, the commit order does not matter.
    """
    with_bounds = transactions.filter(pc.is_valid(transactions["bounded_at"]))
    commits = pc.coalesce(with_bounds["commit_lsn"], with_bounds["first_commit"], -1).to_numpy()
    places = with_bounds["bounded_at"].to_numpy()
    order = np.argsort(places, kind="stable")
    # From a boundary or from a later one it is known that all commits up to a position have arrived.
    ends = np.append(np.maximum.accumulate(commits[order][::-1])[::-1], -1)
    after = np.searchsorted(places[order], transactions["last_taken"].to_numpy(), side="right")
    first_commits = pc.fill_null(transactions["first_commit"], _LEAST).to_numpy()
    return pa.array((after < len(places)) & (ends[after] > first_commits))


def _is_behind(transactions: pa.Table, limit: str | None, open_transactions: pa.Table) -> pa.Array:
    """Return whether each transaction was committed after one that waits.

    A transaction without a readable event, such as an empty one, has no ordering key, but a BEGIN.
    """
    first_order = transactions["first_order"]
    is_behind = pc.fill_null(pc.greater_equal(first_order, pa.scalar(limit, pa.string())), False)
    beginnings = open_transactions.group_by("begun_origin").aggregate([("begun_at", "min")])
    places = pc.index_in(transactions["begun_origin"], value_set=beginnings["begun_origin"], skip_nulls=True)
    is_later = pc.greater(transactions["begun_at"], beginnings["begun_at_min"].take(places))
    return pc.or_(is_behind, pc.fill_null(is_later, False))


def _first_positions(places: pa.Table) -> dict[str, int]:
    """Return the first position of each origin."""
    first = places.group_by("origin").aggregate([("position", "min")])
    return dict(zip(first["origin"].to_pylist(), first["position_min"].to_pylist(), strict=True))


def _first_moment(micros: pa.ChunkedArray) -> int | None:
    """Return the earliest of commit times, 0 where one is unknown; None without any."""
    bounds = pc.min_max(pc.fill_null(micros, 0)).as_py()
    moments = [micros if is_moment(micros) else 0 for micros in bounds.values() if micros is not None]
    return min(moments, default=None)


def _as_waiting(transactions: pa.Table) -> tuple[WaitingTransaction, ...]:
    fields = (NAME, "since_micros", "messages", "expected")
    rows = zip(*(transactions[field].to_pylist() for field in fields), strict=True)
    return tuple(WaitingTransaction(name, _moment(micros), *counts) for name, micros, *counts in rows)


def _moment(micros: int | None) -> int | None:
    return micros if micros is not None and is_moment(micros) else None
