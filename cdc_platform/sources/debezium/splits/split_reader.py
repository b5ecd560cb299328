"""Decoding of one split of a stream: consecutive messages with whole transactions."""

import pickle
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.rows.plain_columns import PlainRun
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.splits.marked_rows import MarkedRows
from cdc_platform.sources.debezium.splits.outcome import (
    FREE,
    OUTCOME,
    ROWS,
    SPLIT,
    SPLIT_BLOCKS,
    FreeRow,
    SplitLines,
    SplitOutcome,
    digest,
)
from cdc_platform.sources.debezium.transactions.collector import Collector, Event
from cdc_platform.sources.debezium.transactions.key_order import altered_events, shares_keys
from cdc_platform.sources.debezium.transactions.transactions import (
    NAME,
    PLACES,
    TRANSACTIONS,
    SplitTransactions,
    places_of,
)
from cdc_platform.sources.debezium.wire.messages import Arrival, Content, parse_message
from cdc_platform.sources.debezium.wire.plain_boundaries import plain_boundary
from cdc_platform.sources.event_batches import EventBatches

Marks = tuple[Sequence[str], Sequence[str | None]]
_COUNTED: Final = PLACES.remove(PLACES.get_field_index("position"))


@dataclass(frozen=True)
class SplitContext:
    """Facts for all splits of a cycle, in a form for tasks.

    Args:
        settings: settings of the stream, from `DebeziumSettings.to_options`.
        cycle: the cycle.
        window: the window of the stream.
        is_one_stream: whether all messages arrive in the order in which the connector emitted them.
    """

    settings: str
    cycle: int
    window: ReadWindow
    is_one_stream: bool


class _RowEvent(Struct, frozen=True, gc=False):
    """An event that becomes a row; ``name`` and ``order`` are as in `TRANSACTION` and `ORDER`.

    ``transaction_id`` is the transaction that counts it, empty for none, and ``records`` the number of its
    events.
    """

    event: Event
    transaction_id: str
    records: int
    origin: str
    name: str = ""
    order: str | None = None


class SplitReader:
    """Decodes the messages of a split into rows.

    Args:
        context: context of the cycle.
        state: decoder state after earlier messages, as text; None at the beginning of a stream.
        files: files or partitions of the split, by origin.
    """

    def __init__(self, context: SplitContext, state: str | None, files: Mapping[str, SourceFile]) -> None:
        self.settings = DebeziumSettings.from_options(context.settings)
        self.decoder = Decoder(self.settings, DecoderState.from_json(state))
        self.collector = Collector(
            is_one_stream=context.is_one_stream,
            has_transaction_metadata=self.settings.has_transaction_metadata,
        )
        self.lines: dict[str, SplitLines] = {}
        self._context = context
        self._files = files
        self._counted: list[pa.Table] = []
        self._free: list[FreeRow] = []

    def take(self, content: Content, origin: str, position: int, micros: int = 0) -> None:
        """Take a line or message that has arrived.

        Args:
            content: the message.
            origin: its file or partition.
            position: its position there.
            micros: when it was sent, as in `Arrival`.
        """
        number = self.collector.arrive(micros)
        boundary = plain_boundary(content)
        if boundary is not None:
            self.collector.take_boundary(boundary, origin, position, number, micros)
            return
        arrival = Arrival(content, origin, position, micros, number)
        if self.decoder.plain.take(arrival):
            self.collector.note_plain()
            return
        for event in self.decoder.decode(parse_message(content, position)):
            self.collector.take(arrival.with_content(event))

    def _take_plain_changes(self) -> None:
        """Take the collected plain changes."""
        plain = self.decoder.plain
        plain.finish()
        for run in plain.runs:
            self.collector.take_run(run)
        for arrival in plain.single_events:
            self.collector.take(arrival)
        plain.runs.clear()
        plain.single_events.clear()

    def blocks(self, split: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all messages, as `SPLIT_BLOCKS`; the last block has the outcome."""
        self._take_plain_changes()
        notes = self.collector.transactions.table()
        transactions = SplitTransactions.of(notes)
        rows = MarkedRows(EventBatches(self._context.cycle))
        file_counts: list[tuple[str, str, int, int]] = []
        for item in self._final_events(transactions):
            file = self._files[item.origin]
            rows.batches.add(item.event, self._context.window, file, item.transaction_id, item.records)
            rows.mark([item.name], [item.order])
            faults = int(isinstance(item.event, FaultyEvent))
            file_counts.append((item.name, item.origin, 1 - faults, faults))
            if rows.batches.is_full:
                yield from _row_blocks(split, rows)
        yield from _row_blocks(split, rows)
        self._count(*zip(*file_counts, strict=True))
        # Where many tables change, a run has few changes.
        for run in self.collector.runs:
            rows.mark(*self._add_run(rows.batches, run, transactions))
            if rows.batches.is_full:
                yield from _row_blocks(split, rows)
        yield from _row_blocks(split, rows)
        outcome, free_rows = self._outcome(notes, transactions), pickle.dumps(self._free)
        yield _block({SPLIT: split, OUTCOME: outcome.to_bytes(), FREE: free_rows})

    def _final_events(self, transactions: SplitTransactions) -> Iterator[_RowEvent]:
        """Yield the events that become rows, with changes completed by later messages of the split."""
        if self._needs_events(transactions):
            self._expand_runs()
        has_metadata = self.settings.has_transaction_metadata
        items = list(self._by_transaction(transactions) if has_metadata else self._one_by_one())
        altered_changes = altered_events([item.event for item in items], self.decoder.rows)
        if not altered_changes:
            yield from items
            return
        for item in items:
            event = item.event
            change = altered_changes.get(event.event_id) if isinstance(event, SourceEvent) else None
            yield item if change is None else replace(item, event=change)

    def _one_by_one(self) -> Iterator[_RowEvent]:
        """Yield each event by itself: it is unknown which transactions are complete."""
        half = self.collector.first_half
        for arrival in self.collector.free:
            if half is None or arrival.content is not half.content:
                yield _RowEvent(arrival.content, "", 1, arrival.origin)

    def _by_transaction(self, transactions: SplitTransactions) -> Iterator[_RowEvent]:
        facts, has_runs = transactions.by_name() if self.collector.members else {}, bool(self.collector.runs)
        for name, members in self.collector.members.items():
            distinct = {member.content.event_id: member for member in members if member.content.event_id}
            nameless = [member for member in members if not member.content.event_id]
            events = [*distinct.values(), *nameless]
            has_metadata, plain = facts[name]
            count = len(events) + (plain if has_runs else 0)
            transaction_id, records = (name, count) if has_metadata else ("", 1)
            for member in events:
                yield _RowEvent(member.content, transaction_id, records, member.origin, name)
        for arrival in self.collector.free:
            event = arrival.content
            order = event.ordering_key if isinstance(event, SourceEvent) else None
            self._free.append((order, arrival.origin, arrival.position, order is None))
            yield _RowEvent(event, "", 1, arrival.origin, "", order)

    def _needs_events(self, transactions: SplitTransactions) -> bool:
        """Return whether plain changes are needed as single events."""
        collector = self.collector
        if not collector.runs:
            return False
        is_seen_again = transactions.has_repetitions or self._shows_former_keys()
        return is_seen_again or shares_keys(self._single_events(), collector.runs)

    def _shows_former_keys(self) -> bool:
        """Return whether a row of a run was deleted under another key by the same record of the log."""
        deleted_at = self.decoder.state.pairer.deleted_at
        return any(deleted_at(identity) for run in self.collector.runs for identity in run.identities)

    def _expand_runs(self) -> None:
        """Turn the plain changes into single events."""
        for run in self.collector.runs:
            self.decoder.rows.note_unpaired(run)
        self.collector.expand_runs()

    def _single_events(self) -> list[Event]:
        """Return the events that are in no run."""
        groups = (*self.collector.members.values(), self.collector.free)
        return [arrival.content for group in groups for arrival in group]

    def _add_run(self, batches: EventBatches, run: PlainRun, transactions: SplitTransactions) -> Marks:
        """Add plain changes, none of which has arrived twice; return the transaction and order of each."""
        count, names, records = len(run), [""] * len(run), [1] * len(run)
        orders: Sequence[str | None] = [None] * count
        if self.settings.has_transaction_metadata and run.mod_type is ModType.SNAPSHOT:
            orders = run.ordering_keys
            self._free += zip(orders, run.origins, run.positions, repeat(False), strict=False)
        elif self.settings.has_transaction_metadata:
            names = list(run.transaction_ids)
            records = transactions.records(names)
        self._count(names, run.origins, [1] * count, [0] * count)
        paths = [self._files[origin].path for origin in run.origins]
        batches.add_run(run, self._context.window, paths, records)
        return names, orders

    def _count(self, *columns: Sequence[Any]) -> None:
        """Count rows, by the columns of `_COUNTED`; none without columns."""
        if columns:
            self._counted.append(pa.table(list(map(list, columns)), schema=_COUNTED))

    def _truncates(self) -> Iterator[tuple[str, str, str]]:
        """Yield the truncates that may precede rows of other partitions."""
        if self._context.is_one_stream:
            return
        for name, arrivals in (*self.collector.members.items(), ("", self.collector.free)):
            for event in (arrival.content for arrival in arrivals):
                if isinstance(event, SourceEvent) and event.mod_type is ModType.TRUNCATE:
                    yield name, event.table, event.ordering_key

    def outcome(self) -> SplitOutcome:
        """Return the outcome of all messages so far, with the counts of the yielded rows."""
        notes = self.collector.transactions.table()
        return self._outcome(notes, SplitTransactions.of(notes))

    def _outcome(self, notes: pa.Table, transactions: SplitTransactions) -> SplitOutcome:
        collector, half = self.collector, self.collector.first_half
        has_metadata = self.settings.has_transaction_metadata
        names = collector.names.union(transactions.transactions[NAME].to_pylist())
        return SplitOutcome(
            transactions=transactions.transactions if has_metadata else TRANSACTIONS.empty_table(),
            names=array("Q", b"".join(map(digest, names))),
            places=places_of(notes, self._counted),
            truncates=list(self._truncates()),
            notes=dict(collector.notes),
            messages=collector.messages,
            newest_micros=collector.newest_micros,
            resume={half.origin: half.position} if half is not None and not has_metadata else {},
            state=self.decoder.state.to_json(),
            use=self.decoder.state.use,
            lines=self.lines,
        )


def _row_blocks(split: int, rows: MarkedRows) -> Iterator[pa.RecordBatch]:
    return (_block({SPLIT: split, ROWS: octets}) for octets in rows.take())


def _block(values: Mapping[str, Any]) -> pa.RecordBatch:
    columns = [pa.array([values.get(column.name)], column.type) for column in SPLIT_BLOCKS]
    return pa.RecordBatch.from_arrays(columns, schema=SPLIT_BLOCKS)
