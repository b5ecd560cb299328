"""Admission of transactions to the log: whole ones that were committed before all others."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from cdc_platform.model.base.timestamps import is_moment
from cdc_platform.model.stream.files import WaitingTransaction
from cdc_platform.sources.debezium.rows.snapshots import is_buffered_snapshot
from cdc_platform.sources.debezium.transactions.progress import PassedUntil
from cdc_platform.sources.debezium.transactions.transactions import Boundaries, Transaction

_CLOCKS_DIFFER_MS = 86_400_000
"""Time by which the clock of a source may be ahead of the platform's."""


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

    def admit(self, transactions: Mapping[str, Transaction], newest_micros: int = 0) -> Admission:
        """Return the transactions that may pass, and the positions from which to read the rest again.

        Args:
            transactions: the arrived part of each transaction.
            newest_micros: send time of the newest message.
        """
        boundaries = Boundaries.of(transactions.values())
        waiting = {
            name: transaction
            for name, transaction in transactions.items()
            if self._waits(name, transaction, boundaries, newest_micros)
        }
        keys = [
            transaction.first_order for transaction in waiting.values() if transaction.first_order is not None
        ]
        admission = Admission(self.passed_until, limit=min(keys, default=None), waiting=_as_waiting(waiting))
        beginnings = earliest({origin: position} for origin, position in _beginnings(waiting.values()))
        exclusions = waiting.keys() | {
            name
            for name, transaction in transactions.items()
            if name not in waiting and _is_behind(transaction, admission, beginnings)
        }
        passing = {name: transaction for name, transaction in transactions.items() if name not in exclusions}
        faults = {name: self._fault(name, transaction) for name, transaction in passing.items()}
        return replace(
            admission,
            until=self._until(passing),
            excluded=frozenset(exclusions),
            faults={name: fault for name, fault in faults.items() if fault is not None},
            resume=earliest(transactions[name].places for name in exclusions),
            again_since_micros=self._again_since_micros(transactions, waiting),
        )

    def _until(self, passing: Mapping[str, Transaction]) -> PassedUntil:
        """Return the last transaction that has passed, after more of them.

        A transaction with only faulty events, or committed after it was read, does not count, since its
        position would make all later transactions look repeated.
        """
        until = self.passed_until
        ordering_key, commit_lsn, newest_ms = until.ordering_key, until.commit_lsn, until.committed_ms
        latest_ms = None if self.read_micros is None else self.read_micros // 1000 + _CLOCKS_DIFFER_MS
        for name, transaction in passing.items():
            committed_ms = 0 if is_buffered_snapshot(name) else transaction.committed_ms
            is_ahead = latest_ms is not None and committed_ms > latest_ms
            if is_ahead or (transaction.has_events and not transaction.has_sound_events):
                continue
            ordering_key = max(ordering_key, transaction.last_order)
            commit_lsn = max(commit_lsn, transaction.commit_lsn or -1)
            newest_ms = max(newest_ms, committed_ms)
        return replace(until, ordering_key=ordering_key, commit_lsn=commit_lsn, committed_ms=newest_ms)

    def _again_since_micros(
        self, transactions: Mapping[str, Transaction], waiting: Mapping[str, Transaction]
    ) -> int | None:
        """Return the commit time of the first transaction that seems to have passed before."""
        repeats = (
            _moment(transaction.since_micros) or 0
            for name, transaction in transactions.items()
            if name not in waiting and self._is_repeated(name, transaction)
        )
        return min(repeats, default=None)

    def _waits(self, name: str, transaction: Transaction, boundaries: Boundaries, newest_micros: int) -> bool:
        """Return whether more of a transaction is to come."""
        if not transaction.has_metadata or self._is_given_up(transaction, newest_micros):
            return False
        if self.is_one_stream:
            has_ended = not is_buffered_snapshot(name) and boundaries.show_end_of(transaction)
            return transaction.expected is None and not has_ended
        return not self._is_repeated(name, transaction) and not transaction.is_whole

    def _is_repeated(self, name: str, transaction: Transaction) -> bool:
        """Return whether a transaction has passed before: it is not after the last one, nor committed later.

        One that is before it but was committed later is from a server that restarted its positions.
        """
        newest_ms = self.passed_until.committed_ms
        if newest_ms and not is_buffered_snapshot(name) and transaction.committed_ms > newest_ms:
            return False
        if transaction.commit_lsn is not None:
            return transaction.commit_lsn <= self.passed_until.commit_lsn
        return "" < transaction.last_order <= self.passed_until.ordering_key

    def _fault(self, name: str, transaction: Transaction) -> str | None:
        """Return why an incomplete transaction must not enter the log; None if it may, or already has."""
        if transaction.is_whole or not transaction.has_metadata:
            return None
        is_repeated = self._is_repeated(name, transaction)
        if is_repeated and is_buffered_snapshot(name):
            return None  # rows that lag behind its end
        total = "an unknown number of" if transaction.expected is None else str(transaction.expected)
        if is_repeated and (transaction.begun_at is None or not self.is_one_stream):
            # The log omits the events that it has already; the others came too late to be recognised, or are
            # in quarantine with the transaction.
            return (
                f"It comes again with a part of its transaction {name}, which has passed before: "
                f"{transaction.messages} of {total} events have come"
            )
        missing_end = "; its END is missing" if transaction.expected is None else ""
        return (
            f"Its transaction {name} has {total} events according to the connector, of which "
            f"{transaction.messages} have come{missing_end}"
        )

    def _is_given_up(self, transaction: Transaction, newest_micros: int) -> bool:
        if self.patience_micros is None:
            return False
        return newest_micros - transaction.last_micros > self.patience_micros


def earliest(all_places: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the first position of each origin."""
    first: dict[str, int] = {}
    for places in all_places:
        for origin, position in places.items():
            first[origin] = min(position, first.get(origin, position))
    return first


def _beginnings(transactions: Iterable[Transaction]) -> list[tuple[str, int]]:
    """Return where the transactions begin, as far as their BEGIN has arrived."""
    return [transaction.begun_at for transaction in transactions if transaction.begun_at is not None]


def _is_behind(transaction: Transaction, admission: Admission, beginnings: Mapping[str, int]) -> bool:
    """Return whether a transaction was committed after one that waits.

    A transaction without a readable event, such as an empty one, has no ordering key, but a BEGIN.
    """
    if admission.holds_back(transaction.first_order):
        return True
    origin, position = transaction.begun_at or ("", 0)
    return origin in beginnings and position > beginnings[origin]


def _moment(micros: int | None) -> int | None:
    return micros if micros is not None and is_moment(micros) else None


def _as_waiting(transactions: Mapping[str, Transaction]) -> tuple[WaitingTransaction, ...]:
    return tuple(
        WaitingTransaction(
            name, _moment(transaction.since_micros), transaction.messages, transaction.expected
        )
        for name, transaction in transactions.items()
    )
