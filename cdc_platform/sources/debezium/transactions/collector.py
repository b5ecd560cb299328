"""Collector of a read's events by transaction."""

from collections import defaultdict
from dataclasses import replace
from operator import attrgetter

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent, SourceMessage
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.rows.checkpoints import Decoded
from cdc_platform.sources.debezium.rows.findings import gives_key_up
from cdc_platform.sources.debezium.rows.plain_columns import PlainRun
from cdc_platform.sources.debezium.rows.snapshots import is_buffered_snapshot
from cdc_platform.sources.debezium.transactions.transactions import EventNote, TransactionNotes
from cdc_platform.sources.debezium.wire.message_contents import Signal, TransactionBegin, TransactionEnd
from cdc_platform.sources.debezium.wire.messages import Arrival
from cdc_platform.sources.sound_rows import escape

Event = SourceEvent | FaultyEvent


class Collector:
    """Collects the messages of a split by transaction.

    Attributes:
        names: names of transactions without transaction metadata.
        members: events of each transaction, in order of arrival.
        transactions: notes on the messages of each transaction.
        notes: logical messages of each transaction with their origins and positions; "" has all others.
        free: all other events.
        runs: plain changes, which are in neither.
        messages: number of messages that have arrived.
        newest_micros: time at which the newest message was sent.
        current: the transaction that has begun and not ended; empty for none.

    Args:
        is_one_stream: whether all messages arrive in the order in which the connector emitted them.
        has_transaction_metadata: whether the messages show which transactions are whole.
    """

    def __init__(self, *, is_one_stream: bool, has_transaction_metadata: bool) -> None:
        self.names: set[str] = set()
        self.transactions = TransactionNotes()
        self.members: defaultdict[str, list[Arrival[Event]]] = defaultdict(list)
        self.notes: defaultdict[str, list[tuple[SourceMessage, str, int]]] = defaultdict(list)
        self.free: list[Arrival[Event]] = []
        self.messages = 0
        self.newest_micros = 0
        self._is_one_stream = is_one_stream
        self._has_transaction_metadata = has_transaction_metadata
        self.runs: list[PlainRun] = []
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
            self.take_boundary(event, arrival.origin, arrival.position, arrival.number, arrival.micros)
        elif isinstance(event, SourceMessage):
            self._take_note(event, arrival)
        elif isinstance(event, Signal):
            self._take_signal(event, arrival)

    def take_boundary(
        self,
        boundary: TransactionBegin | TransactionEnd,
        origin: str,
        position: int,
        number: int,
        micros: int,
    ) -> None:
        """Add a boundary that has arrived at a place, as in `Arrival`."""
        self.transactions.add_boundary(boundary, origin, position, number, micros)
        if isinstance(boundary, TransactionBegin):
            self.current = boundary.transaction_id
        elif self.current == boundary.transaction_id:
            self.current = ""

    def _take_signal(self, signal: Signal, arrival: Arrival[Decoded]) -> None:
        if signal.transaction_id:
            self._note(escape(signal.transaction_id), arrival, signal.ordering_key, signal.event_id)
        elif self._is_one_stream:
            self._note(escape(self.current), arrival)

    def _take_note(self, note: SourceMessage, arrival: Arrival[Decoded]) -> None:
        self._newest = None
        name = escape(note.transaction_id)
        self._note(name, arrival, note.ordering_key, note.event_id)
        self.notes[name].append((note, arrival.origin, arrival.position))

    def _take_event(self, event: Event, arrival: Arrival[Decoded]) -> None:
        if isinstance(event, SourceEvent):
            transaction, ordering_key, message_id = event.transaction_id, event.ordering_key, None
        else:
            before = self._newest.content if self._is_one_stream and self._newest is not None else None
            if not event.ordering_key and gives_key_up(before):
                # The other half directly follows the first one, so an unreadable message is that half.
                event = replace(event, ordering_key=before.ordering_key)
            # In a single ordered stream, all messages between its boundaries belong to it.
            transaction = event.transaction_id or (self.current if self._is_one_stream else "")
            ordering_key, message_id = None, event.message_id
        entry, name = arrival.with_content(event), escape(transaction)
        if self._newest is None or self._newest.number <= arrival.number:
            self._newest = entry
        if not (name and self._has_transaction_metadata):
            if name:
                self.names.add(name)
            self.free.append(entry)
            return
        self._note(name, arrival, ordering_key, event.event_id or message_id)
        self.members[name].append(entry)

    def take_run(self, run: PlainRun) -> None:
        """Add a run of plain changes in the order of arrival."""
        self.runs.append(run)
        if run.mod_type is ModType.SNAPSHOT:
            return
        if self._has_transaction_metadata:
            self.transactions.add_run(run)
        else:
            self.names.update(run.transaction_ids)

    def expand_runs(self) -> None:
        """Turn the plain changes into single events."""
        names = set[str]()
        for run in self.runs:
            places = zip(run.origins, run.positions, run.sent_micros, run.numbers, strict=True)
            for event, place in zip(run.events(), places, strict=True):
                entry, name = Arrival(event, *place), event.transaction_id
                is_member = bool(name) and self._has_transaction_metadata
                (self.members[name] if is_member else self.free).append(entry)
                names.add(name)
        for some in (self.free, *(self.members[name] for name in names & self.members.keys())):
            some.sort(key=attrgetter("number"))
        self.runs.clear()

    def _note(
        self,
        transaction: str,
        arrival: Arrival[Decoded],
        ordering_key: str | None = None,
        event_id: str | None = None,
    ) -> None:
        """Note a message of a transaction, by escaped name; without a name there is none."""
        if not transaction:
            return
        event = arrival.content
        is_sound = isinstance(event, SourceEvent)
        # All events of one message have the same identity but for a `+` at its end.
        message_id = (event_id or "").removesuffix("+") or f"{arrival.origin}#{arrival.position}"
        self.transactions.add(
            EventNote(
                transaction,
                arrival.origin,
                arrival.position,
                arrival.number,
                arrival.micros,
                escape(message_id),
                ordering_key,
                event.source_micros if isinstance(event, SourceEvent) else None,
                int(is_sound or isinstance(event, FaultyEvent)),
                is_sound,
                ordering_key is None or is_buffered_snapshot(transaction),
            )
        )
