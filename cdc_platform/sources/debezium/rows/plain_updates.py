"""Updates from which nothing is to be learned, which most events of a stream are.

An update without the row before it, of a table and columns that were seen before, shows no replica identity,
no key change and no snapshot. What the decoder asks of each event has one answer for all of one form, so such
updates wait for each other, and are decoded together, by column.
"""

from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Final

from cdc_platform.model.base.malformed import MALFORMED
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.debezium.rows.plain_columns import (
    Arrived,
    PlainForm,
    PlainRun,
    Update,
    plain_run,
)
from cdc_platform.sources.debezium.rows.rows import RowDecoder
from cdc_platform.sources.debezium.settings.policies import Strategy
from cdc_platform.sources.debezium.wire.contents import read_content
from cdc_platform.sources.debezium.wire.event_faults import fault_of
from cdc_platform.sources.debezium.wire.message_contents import UPDATE, DataEvent, MessageUnusable
from cdc_platform.sources.debezium.wire.messages import Message, RawMessage, parse_line, parse_raw
from cdc_platform.sources.debezium.wire.plain_lines import PlainUpdate, plain_update
from cdc_platform.sources.debezium.wire.positions import ordering_key

_MAX_WAITING: Final = 4_096
_MAX_WAITING_BYTES: Final = 4_000_000
"""Updates that wait become batches of rows, of which Spark holds a few at a time."""


class PlainUpdates:
    """Collects the plain updates of a split whose forms are known from events before them.

    Attributes:
        runs: updates that were decoded by column.
        others: the events of updates that were not, such as faults.
    """

    def __init__(self, rows: RowDecoder) -> None:
        self.runs: list[PlainRun] = []
        self.others: list[tuple[SourceEvent | FaultyEvent, Arrived]] = []
        self._rows = rows
        self._forms: dict[Hashable, PlainForm] = {}
        self._waiting: dict[Hashable, list[Update]] = {}
        self._open: dict[Hashable, list[Update]] = {}
        self._count = 0
        self._bytes = 0

    def learn(self, event: DataEvent, table: str) -> None:
        """Take note of an event of a table of the lake that the decoder has decoded."""
        sent = event.message.sent
        if event.op is not UPDATE or event.before is not None or isinstance(sent, str):
            return
        plain = plain_update(sent)
        form = None if plain is None else _form_of(plain)
        if form is not None and form not in self._forms:
            source, plan = event.source, self._rows.planner.plan(event, table)
            parts = source.server, source.name, source.schema, source.table
            self._forms[form] = PlainForm(table, plan, *parts)

    def ask_again(self) -> None:
        """Take note that the state of tables and servers may have changed."""
        self._open.clear()

    def take(self, arrived: Arrived) -> bool:
        """Take a message if it is a plain update of a known form; return whether it is one."""
        sent = arrived[0]
        plain = plain_update(sent)
        if plain is None:
            return False
        form = _form_of(plain)
        updates = self._open.get(form)
        if updates is None:
            known = self._forms.get(form)
            if known is None or not self._is_at_rest(known):
                return False
            updates = self._open[form] = self._waiting.setdefault(form, [])
        if plain.envelope.transaction is not None:
            self._rows.state.pairer.remember_order(plain)
        updates.append((plain, arrived))
        self._count += 1
        self._bytes += len(sent if isinstance(sent, bytes) else sent.value or "")
        if self._count >= _MAX_WAITING or self._bytes >= _MAX_WAITING_BYTES:
            self.finish()
        return True

    def _is_at_rest(self, form: PlainForm) -> bool:
        """Return whether an update shows nothing in the present state of its table and server."""
        state = self._rows.state
        if form.name in state.full or form.name in state.unusable:
            return False
        snapshots = state.snapshots.seen.get(form.server)
        return snapshots is not None and snapshots.is_at_rest

    def finish(self) -> None:
        """Decode the updates that wait."""
        waiting, self._waiting, self._open = self._waiting, {}, {}
        self._count = self._bytes = 0
        for form, updates in waiting.items():
            self._decode(self._forms[form], updates)

    def _decode(self, form: PlainForm, updates: Sequence[Update]) -> None:
        """Decode updates of one form by column; those that cannot be decoded so are found by halving."""
        try:
            run = plain_run(form, updates, keeps_null=self._rows.settings.strategy == Strategy.VETO)
        except MALFORMED:
            if len(updates) == 1:
                _, arrived = updates[0]
                self.others.append((self._decode_one(form, arrived), arrived))
                return
            middle = len(updates) // 2
            self._decode(form, updates[:middle])
            self._decode(form, updates[middle:])
            return
        self.runs.append(run)
        self._note_change(form, run.micros)

    def _note_change(self, form: PlainForm, moments: Sequence[int | None]) -> None:
        self._rows.state.snapshots.seen[form.server].change(form.table, moments)

    def _decode_one(self, form: PlainForm, arrived: Arrived) -> SourceEvent | FaultyEvent:
        event = _event_of(arrived[0], arrived[2])
        try:
            change = self._rows.decode_plain(event, form.table, form.plan)
        except MALFORMED as error:
            order = ""
            with suppress(MessageUnusable):
                order = ordering_key(event, self._rows.state.floor_of(event.source))
            return fault_of(event.message, error, event, order, form.table)
        self._note_change(form, (change.source_micros,))
        return change


def _form_of(update: PlainUpdate) -> Hashable:
    """Return what updates share that are decoded alike."""
    source, block, key_block = update.envelope.source, update.block, update.key_block
    fields = None if block is None else block.row_fields
    key_fields = None if key_block is None else key_block.fields
    return (
        source.name,
        source.db,
        source.schema,
        source.table,
        source.version,
        tuple(update.key),
        tuple(update.envelope.after),
        None if fields is None else fields.form,
        None if key_fields is None else key_fields.form,
    )


def _event_of(sent: bytes | RawMessage, position: int) -> DataEvent:
    message = parse_line(sent, position) if isinstance(sent, bytes) else parse_raw(sent)
    event = read_content(message) if isinstance(message, Message) else None
    if not isinstance(event, DataEvent):
        raise TypeError(event)
    return event
