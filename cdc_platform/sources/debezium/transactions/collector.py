"""Collector of a read's events by transaction."""

from collections import defaultdict
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent, SourceMessage
from cdc_platform.sources.debezium.rows.checkpoints import Decoded
from cdc_platform.sources.debezium.rows.findings import gives_key_up
from cdc_platform.sources.debezium.rows.plain_columns import PlainRun
from cdc_platform.sources.debezium.rows.snapshots import is_buffered_snapshot
from cdc_platform.sources.debezium.transactions.transactions import Transaction
from cdc_platform.sources.debezium.wire.message_contents import READ, Signal, TransactionBegin, TransactionEnd
from cdc_platform.sources.debezium.wire.messages import Arrival

Event = SourceEvent | FaultyEvent


class Collector:
    """Collects the messages of a split by transaction.

    Attributes:
        names: names of all transactions.
        transactions: state of each transaction, by name; empty without transaction metadata.
        members: events of each transaction, in order of arrival.
        notes: logical messages of each transaction with their origins and positions; "" has all others.
        free: all other events.
        runs: plain changes, which are in neither.
        plain_counts: the number of these in each transaction, with transaction metadata.
        messages: number of messages that have arrived.
        newest_micros: time at which the newest message was sent.
        current: the transaction that has begun and not ended; empty for none.

    Args:
        is_one_stream: whether all messages arrive in the order in which the connector emitted them.
        has_transaction_metadata: whether the messages show which transactions are whole.
    """

    def __init__(self, *, is_one_stream: bool, has_transaction_metadata: bool) -> None:
        self.names: set[str] = set()
        self.transactions: dict[str, Transaction] = {}
        self.members: defaultdict[str, list[Arrival[Event]]] = defaultdict(list)
        self.notes: defaultdict[str, list[tuple[SourceMessage, str, int]]] = defaultdict(list)
        self.free: list[Arrival[Event]] = []
        self.messages = 0
        self.newest_micros = 0
        self._is_one_stream = is_one_stream
        self._has_transaction_metadata = has_transaction_metadata
        self.runs: list[PlainRun] = []
        self.plain_counts: defaultdict[str, int] = defaultdict(int)
        self._rowless_messages: defaultdict[str, int] = defaultdict(int)
        self._message_ids: defaultdict[str, set[str]] = defaultdict(set)
        self.current = ""
        self._newest: Arrival[Event] | None = None

    @property
    def first_half(self) -> Arrival[Event] | None:
        """The newest event, if it is the first half of a key change.

        In one stream the halves of a key change are consecutive.
        """
        is_half = self._is_one_stream and self._newest is not None and gives_key_up(self._newest.content)
        return self._newest if is_half else None

    def arrive(self, micros: int) -> int:
        """Count a message that was sent at a time; return the number of messages that have arrived."""
        self.messages += 1
        self.newest_micros = max(self.newest_micros, micros)
        return self.messages

    def note_plain(self) -> None:
        """Note that a plain change has arrived, which is no half of a key change; `take_run` adds it."""
        self._newest = None

    def take(self, arrival: Arrival[Decoded]) -> None:
        """Add an event of a message that has arrived."""
        event = arrival.content
        if isinstance(event, SourceEvent | FaultyEvent):
            self._take_event(event, arrival)
        elif isinstance(event, TransactionBegin | TransactionEnd):
            self._take_boundary(event, arrival)
        elif isinstance(event, SourceMessage):
            self._take_note(event, arrival)
        elif isinstance(event, Signal):
            self._take_signal(event, arrival)

    def _take_boundary(self, boundary: TransactionBegin | TransactionEnd, arrival: Arrival[Decoded]) -> None:
        bounded = self._of(boundary.transaction_id)
        bounded.has_metadata = True
        bounded.take_place(arrival.origin, arrival.position, arrival.number, arrival.micros)
        if not is_buffered_snapshot(boundary.transaction_id):
            bounded.bounded_at = arrival.number
        if isinstance(boundary, TransactionBegin):
            self.current = boundary.transaction_id
            bounded.begun_at = bounded.begun_at or (arrival.origin, arrival.position)
            bounded.since_micros = boundary.micros
            return
        bounded.expected = boundary.event_count
        bounded.commit_lsn = boundary.lsn
        if self.current == boundary.transaction_id:
            self.current = ""

    def _take_signal(self, signal: Signal, arrival: Arrival[Decoded]) -> None:
        if signal.transaction_id:
            self._count(signal.transaction_id, arrival, signal.ordering_key, signal.event_id)
            self._rowless_messages[signal.transaction_id] += 1
        elif self._is_one_stream:
            self._count(arrival.within, arrival)
            self._rowless_messages[arrival.within] += 1

    def _take_note(self, note: SourceMessage, arrival: Arrival[Decoded]) -> None:
        self._newest = None
        self._count(note.transaction_id, arrival, note.ordering_key, note.event_id)
        self._rowless_messages[note.transaction_id] += 1
        self.notes[note.transaction_id].append((note, arrival.origin, arrival.position))

    def _take_event(self, event: Event, arrival: Arrival[Decoded]) -> None:
        if isinstance(event, SourceEvent):
            transaction, ordering_key, message_id = event.transaction_id, event.ordering_key, None
        else:
            before = self._newest.content if self._is_one_stream and self._newest is not None else None
            if not event.ordering_key and gives_key_up(before):
                # The other half directly follows the first one, so an unreadable message is that half.
                event = replace(event, ordering_key=before.ordering_key)
            # In a single ordered stream, all messages between its boundaries belong to it.
            transaction = event.transaction_id or (arrival.within if self._is_one_stream else "")
            ordering_key, message_id = None, event.message_id
        entry = arrival.with_content(event)
        if self._newest is None or self._newest.number <= arrival.number:
            self._newest = entry
        if not (transaction and self._has_transaction_metadata):
            if transaction:
                self.names.add(transaction)
            self.free.append(entry)
            return
        self._count(transaction, arrival, ordering_key, event.event_id or message_id)
        counted = self.transactions[transaction]
        counted.has_events = True
        counted.has_sound_events = counted.has_sound_events or isinstance(event, SourceEvent)
        self.members[transaction].append(entry)

    def take_run(self, run: PlainRun) -> None:
        """Add plain changes, which have arrived."""
        self.runs.append(run)
        if run.form.op is READ:
            return
        if not self._has_transaction_metadata:
            self.names.update(run.transaction_ids)
            return
        start = 0
        for (transaction, origin), group in groupby(zip(run.transaction_ids, run.origins, strict=True)):
            end = start + len(list(group))
            self._count_run(transaction, origin, run, slice(start, end))
            start = end

    def _count_run(self, transaction: str, origin: str, run: PlainRun, part: slice) -> None:
        entry, orders = self._of(transaction), run.ordering_keys[part]
        entry.take_place(origin, min(run.positions[part]), max(run.numbers[part]), max(run.sent_micros[part]))
        entry.take_orders(orders)
        if entry.since_micros is None:
            entry.since_micros = run.micros[part][0]
        entry.has_events = entry.has_sound_events = True
        message_ids = self._message_ids[transaction]
        message_ids.update(run.event_ids[part])
        entry.messages = len(message_ids)
        self.plain_counts[transaction] += len(orders)

    def has_repetitions(self) -> bool:
        """Return whether an event of a transaction with plain changes may have arrived more than once."""
        return any(
            self.transactions[name].messages - self._rowless_messages[name]
            < count + len(self.members.get(name, ()))
            for name, count in self.plain_counts.items()
        )

    def expand_runs(self) -> None:
        """Turn the plain changes into single events."""
        for run in self.runs:
            places = zip(run.origins, run.positions, run.sent_micros, run.numbers, strict=True)
            for event, place in zip(run.events(), places, strict=True):
                entry, name = Arrival(event, *place), event.transaction_id
                (self.members[name] if name and self._has_transaction_metadata else self.free).append(entry)
        for some in (self.free, *(self.members[name] for name in self.plain_counts)):
            some.sort(key=attrgetter("number"))
        self.runs.clear()
        self.plain_counts.clear()

    def _count(
        self,
        transaction: str,
        arrival: Arrival[Decoded],
        ordering_key: str | None = None,
        event_id: str | None = None,
    ) -> None:
        if not transaction:
            return
        entry = self._of(transaction)
        entry.take_place(arrival.origin, arrival.position, arrival.number, arrival.micros)
        event = arrival.content
        if entry.since_micros is None and isinstance(event, SourceEvent):
            entry.since_micros = event.source_micros
        entry.has_metadata = entry.has_metadata or ordering_key is None or is_buffered_snapshot(transaction)
        message_ids = self._message_ids[transaction]
        # All events of one message have the same identity but for a `+` at its end.
        message_ids.add((event_id or "").removesuffix("+") or f"{arrival.origin}#{arrival.position}")
        entry.messages = len(message_ids)
        if ordering_key is not None:
            entry.take_orders((ordering_key,))

    def _of(self, transaction: str) -> Transaction:
        entry = self.transactions.get(transaction)
        if entry is None:
            entry = self.transactions[transaction] = Transaction()
            self.names.add(transaction)
        return entry
