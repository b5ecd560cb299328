"""Plain changes, which show the decoder nothing new, as most events of a stream do.

A plain change is an insert, update or delete of a table and columns that were seen before; an update has an
image before only if the table's replica identity is known to be FULL. It shows no other identity, no key
change and no snapshot; nor does a row within the first snapshot of the stream. What the decoder asks of each
event has one answer for all plain changes of one form, so they are collected and decoded together, by column.
If a later message shows that an inserted row had another key, its run is turned into single events.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.debezium.rows.identity import delete_shows_known, update_shows_index
from cdc_platform.sources.debezium.rows.plain_columns import (
    Change,
    PlainForm,
    PlainRun,
    Undecidable,
    plain_run,
)
from cdc_platform.sources.debezium.rows.rows import RowDecoder
from cdc_platform.sources.debezium.settings.connector import Strategy
from cdc_platform.sources.debezium.wire.event_faults import fault_of
from cdc_platform.sources.debezium.wire.flattened_messages import read_content
from cdc_platform.sources.debezium.wire.message_contents import CREATE, DELETE, READ, UPDATE, DataEvent
from cdc_platform.sources.debezium.wire.messages import Arrival, Content, Message, parse_message
from cdc_platform.sources.debezium.wire.plain_lines import PlainChange, PlainSource, plain_change

_MAX_WAITING: Final = 8_192
_MAX_WAITING_BYTES: Final = 4_000_000
"""Changes that wait become batches of rows, of which Spark holds a few at a time."""


@dataclass(eq=False)
class _Queue:
    """Changes of one form that wait; a queue is a key by itself, since hashing a form takes long."""

    form: PlainForm
    changes: list[Change] = field(default_factory=list)

    @cached_property
    def unpaired(self) -> "_Queue":
        """The queue of inserts of this form whose rows may have had another key."""
        return _Queue(self.form._replace(is_new=False))

    @cached_property
    def unpaired_full(self) -> "_Queue":
        """The queue of the same under REPLICA IDENTITY FULL."""
        return _Queue(self.form._replace(is_new=False, is_full=True))

    @cached_property
    def partial(self) -> "_Queue":
        """The queue of updates of this form whose rows before them may lack values."""
        return _Queue(self.form._replace(is_full=False))


class PlainChanges:
    """Collects the plain changes of a split whose forms are known from earlier events.

    Attributes:
        runs: changes that were decoded by column.
        single_events: the other changes, such as faults.
    """

    def __init__(self, rows: RowDecoder) -> None:
        self.runs: list[PlainRun] = []
        self.single_events: list[Arrival[SourceEvent | FaultyEvent]] = []
        self._rows = rows
        self._queues: dict[Hashable, _Queue] = {}
        self._new_form: Hashable = None
        self._waiting: list[_Queue] = []
        self._at_rest: set[_Queue] = set()
        self._count = 0
        self._bytes = 0

    def learn(self, event: DataEvent, table: str) -> None:
        """Take note of the form of the last message, whose event for a table of the lake has been decoded."""
        source, is_delete = event.source, event.op is DELETE
        may_be_full = self._may_be_full(source.name, table)
        is_full = may_be_full if is_delete else event.before is not None
        if self._new_form is None or (is_full and not may_be_full):
            return
        plan = self._rows.planner.plan(event, table)
        parts = source.server, source.name, source.schema, source.table
        self._queues[self._new_form] = _Queue(PlainForm(event.op, True, is_full, table, plan, *parts))

    def recheck_forms(self) -> None:
        """Check forms again before their next changes: the state of tables and servers may have changed."""
        self._at_rest.clear()

    def take(self, arrival: Arrival[Content]) -> bool:
        """Take a message if it is a plain change of a known form; return whether it is one."""
        content, pairer = arrival.content, self._rows.state.pairer
        plain = plain_change(content)
        key = None if plain is None else _form_of(plain)
        queue = None if key is None else self._queues.get(key)
        self._new_form = key if queue is None else None
        if plain is None or queue is None or not self._shows_nothing(plain, queue.form):
            return False
        if queue not in self._at_rest and not self._is_at_rest(queue, plain.envelope.source.lsn):
            return False
        if queue.form.op is DELETE:
            self._rows.state.remember(plain)
        if not pairer.remember_plain(plain) and queue.form.op is CREATE:
            is_full = self._may_be_full(queue.form.name, queue.form.table)
            queue = queue.unpaired_full if is_full else queue.unpaired
        if self._looks_partial(plain, queue.form):
            if queue.form.plan.doubts_null:
                return False
            queue = queue.partial
        if not queue.changes:
            self._waiting.append(queue)
        queue.changes.append((plain, arrival))
        self._count += 1
        self._bytes += len(content if isinstance(content, bytes) else content.value or "")
        if self._count >= _MAX_WAITING or self._bytes >= _MAX_WAITING_BYTES:
            self.finish()
        return True

    def _shows_nothing(self, change: PlainChange, form: PlainForm) -> bool:
        """Return whether a change shows neither another key nor another identity or snapshot."""
        if form.op is UPDATE:
            return not form.is_full or _keeps_key(change)
        if form.op is DELETE:
            before = change.envelope.before or {}
            return delete_shows_known(change.key, before, form.plan.columns, is_full=form.is_full)
        if form.op is CREATE:
            return not self._rows.state.pairer.knows_deletion(change)
        return self._is_of_first_snapshot(change.envelope.source)

    def _looks_partial(self, change: PlainChange, form: PlainForm) -> bool:
        """Return whether an update looks as if its row before it had only the columns of an index."""
        if form.op is not UPDATE or not form.is_full or form.table in self._rows.settings.full_identity:
            return False
        before, after = change.envelope.before or {}, change.envelope.after or {}
        return update_shows_index(change.key, before, after, form.plan.columns)

    def _is_at_rest(self, queue: _Queue, lsn: int) -> bool:
        """Return whether such a change shows nothing in the present state of its table and server."""
        state, form = self._rows.state, queue.form
        may_be_full, is_delete = self._may_be_full(form.name, form.table), form.op is DELETE
        if (is_delete or form.is_full) and form.is_full is not may_be_full:
            return False
        if form.op is UPDATE and not form.is_full and form.name in state.full:
            return False
        if (is_delete or not form.is_full) and form.name in state.unusable:
            return False
        snapshots = state.snapshots.servers.get(form.server)
        if snapshots is None or not snapshots.is_at_rest(lsn):
            return False
        if not snapshots.empty:  # otherwise the answer depends on the position
            self._at_rest.add(queue)
        return True

    def _is_of_first_snapshot(self, source: PlainSource) -> bool:
        """Return whether a row is of the snapshot that its stream begins with, but not its first row."""
        state = self._rows.state
        snapshots = state.snapshots.servers[source.name]
        return snapshots.first == snapshots.newest == state.floors.get(source.name) == source.lsn

    def _may_be_full(self, name: str, table: str) -> bool:
        return name in self._rows.state.full or table in self._rows.settings.full_identity

    def finish(self) -> None:
        """Decode the collected changes."""
        pairs, self._waiting = self._waiting, []
        self._count = self._bytes = 0
        for queue in pairs:
            changes, queue.changes = queue.changes, []
            self._decode(queue.form, changes)

    def _decode(self, form: PlainForm, changes: Sequence[Change]) -> None:
        """Decode changes of one form by column; halving finds those that cannot be decoded so."""
        if form.op is not READ:
            positions = (change.envelope.source.lsn for change, _ in changes)
            self._rows.state.use.see_changes(form.server, min(positions))
        try:
            run = plain_run(form, changes, keeps_null=self._rows.settings.strategy == Strategy.VETO)
        except Undecidable as error:
            by_column = [change for place, change in enumerate(changes) if place not in error.places]
            self._decode_each(form, [changes[place] for place in sorted(error.places)])
            if by_column:
                self._decode(form, by_column)
            return
        except MALFORMED:
            if len(changes) == 1:
                self._decode_each(form, changes)
                return
            middle = len(changes) // 2
            self._decode(form, changes[:middle])
            self._decode(form, changes[middle:])
            return
        self.runs.append(run)
        self._note_change(form, run.source_micros)
        if form.op is UPDATE and not form.is_full and changes[0][0].envelope.before is not None:
            for (change, _), event_id in zip(changes, run.event_ids, strict=True):
                self._rows.remember_before(event_id, form.plan, change.envelope.before or {})

    def _decode_each(self, form: PlainForm, changes: Sequence[Change]) -> None:
        for _, arrival in changes:
            self.single_events.append(arrival.with_content(self._decode_one(form, arrival)))

    def _note_change(self, form: PlainForm, moments: Sequence[int | None]) -> None:
        if form.op is not READ:
            self._rows.state.snapshots.servers[form.server].change(form.table, moments)

    def _decode_one(self, form: PlainForm, arrival: Arrival[Content]) -> SourceEvent | FaultyEvent:
        event = _event_of(arrival.content, arrival.position)
        try:
            change = self._rows.decode_plain(event, form)
        except MALFORMED as error:
            return fault_of(event.message, error, event, self._rows.state.order_of(event), form.table)
        self._note_change(form, (change.source_micros,))
        return change


def _keeps_key(change: PlainChange) -> bool:
    """Return whether an update with the row before it has not changed the key."""
    before = change.envelope.before or {}
    return all(name in before and before[name] == value for name, value in change.key.items())


def _form_of(change: PlainChange) -> Hashable:
    """Return the key of a change's form: changes with equal keys are decoded alike."""
    source, block, key_block = change.envelope.source, change.block, change.key_block
    fields = None if block is None else block.row_fields
    key_fields = None if key_block is None else key_block.fields
    return (
        change.envelope.op,
        source.name,
        source.db,
        source.schema,
        source.table,
        source.version,
        tuple(change.key),
        None if change.envelope.after is None else tuple(change.envelope.after),
        None if change.envelope.before is None else tuple(change.envelope.before),
        None if fields is None else fields.form,
        None if key_fields is None else key_fields.form,
    )


def _event_of(content: Content, position: int) -> DataEvent:
    message = parse_message(content, position)
    event = read_content(message) if isinstance(message, Message) else None
    if not isinstance(event, DataEvent):
        raise TypeError(event)
    return event
