"""Updates that add no knowledge, as most events of a stream are: decoded together, column by column.

An update without the row before it, of a known table with known columns, shows no replica identity, no key
change and no snapshot. Its change depends on nothing but the message, so that it can be decoded later than
the messages after it, together with others of its form.
"""

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from cdc_platform.model.base.malformed import MALFORMED
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.debezium.rows.checkpoints import Decoded
from cdc_platform.sources.debezium.rows.pairing import has_headers
from cdc_platform.sources.debezium.rows.plain_columns import PlainUpdate, changes_of
from cdc_platform.sources.debezium.rows.plans import TablePlan
from cdc_platform.sources.debezium.rows.rows import RowDecoder
from cdc_platform.sources.debezium.wire.contents import read_content
from cdc_platform.sources.debezium.wire.envelope import NEW_KEY, OLD_KEY, pair_of
from cdc_platform.sources.debezium.wire.message_contents import UPDATE, DataEvent
from cdc_platform.sources.debezium.wire.messages import Message, RawMessage, headers_of, parse_line
from cdc_platform.sources.debezium.wire.schema_blocks import part_of
from cdc_platform.sources.debezium.wire.typed_envelope import NOT_TYPED, TypedEnvelope
from cdc_platform.sources.debezium.wire.typed_forms import TypedForm

_OF_NO_SNAPSHOT: Final = (None, "false", "")
_LEAST: Final = 8
"""Fewer updates of one form are decoded sooner one by one."""

FaultOf = Callable[[Message, Exception, DataEvent], FaultyEvent]


class _Form(NamedTuple):
    """Table of the lake, server, name in the database, and plan of the updates of one form."""

    table: str
    server: str
    name: str
    plan: TablePlan


class PlainUpdates:
    """Collects updates of the forms that a decoder has seen, and decodes them.

    Args:
        rows: decodes events one by one.
        fault_of: returns the fault of an event.
    """

    def __init__(self, rows: RowDecoder, fault_of: FaultOf) -> None:
        self._rows = rows
        self._fault_of = fault_of
        self._forms: dict[Hashable, _Form] = {}
        self._typed: dict[Hashable, TypedForm] = {}
        self._by_head: dict[bytes, Hashable] = {}
        self._open: set[Hashable] = set()
        self._waiting: dict[Hashable, list[tuple[PlainUpdate, list[Decoded]]]] = {}

    def doubt(self) -> None:
        """Ask again what is known of a table: a message adds knowledge that may make a difference."""
        self._open.clear()

    def learn(self, event: DataEvent, table: str) -> None:
        """Learn from an event of a table of the lake that the decoder has decoded."""
        update, source, sent = _update_of(event.message), event.source, event.message.sent
        if update is None:
            return
        plan = self._rows.planner.plan(event, table)
        self._forms[update.form] = _Form(table, source.server, source.name, plan)
        if isinstance(sent, RawMessage):
            return
        line = sent if isinstance(sent, bytes) else sent.encode(errors="surrogateescape")
        with suppress(*MALFORMED, *NOT_TYPED):
            if update.form not in self._typed:
                self._typed[update.form] = TypedForm(line, event.message)
            self._by_head[_head_of(line)] = update.form

    def take_line(self, line: bytes, position: int) -> list[Decoded] | None:
        """Return the same for a line, which is parsed faster; None for most other lines."""
        form = self._by_head.get(_head_of(line))
        if form is None or not (form in self._open or self._is_open(form)):
            return None
        parsed = self._typed[form].parse(line)
        if parsed is None:
            return None
        headers = parsed.line.headers and headers_of(parsed.line.headers)
        offset = parsed.line.offset
        place = position if offset is None else offset
        update = _update(form, line, (position, place, headers), *parsed[1:])
        return None if update is None else self._wait(update)

    def take(self, message: Message) -> list[Decoded] | None:
        """Return a list that gets the change of a plain update with `settle`; None for all other messages."""
        update = _update_of(message)
        if update is None or not (update.form in self._open or self._is_open(update.form)):
            return None
        return self._wait(update)

    def _wait(self, update: PlainUpdate) -> list[Decoded]:
        decoded: list[Decoded] = []
        self._waiting.setdefault(update.form, []).append((update, decoded))
        source, order = update.envelope.source, update.order
        if not (order is None or source.txId is None or source.lsn is None or has_headers(update.headers)):
            self._rows.state.pairer.remember_order(source.name or "", source.txId, order)
        return decoded

    def _is_open(self, name: Hashable) -> bool:
        """Return whether the form is known, and nothing learned since makes a difference to its updates."""
        form, state = self._forms.get(name), self._rows.state
        snapshots = None if form is None else state.snapshots.seen.get(form.server)
        if form is None or form.name in state.full or form.name in state.unusable:
            return False
        if snapshots is None or not snapshots.is_at_rest:
            return False
        self._open.add(name)
        return True

    def settle(self) -> None:
        """Decode the updates that have been taken; the next message may change what is known."""
        self._open.clear()
        waiting, self._waiting = self._waiting, {}
        for name, updates in waiting.items():
            form = self._forms[name]
            changes = self._together(form, [update for update, _ in updates])
            for change, (_, decoded) in zip(changes, updates, strict=True):
                decoded.append(change)
            moments = {change.source_micros for change in changes if isinstance(change, SourceEvent)}
            for micros in moments:
                self._rows.state.snapshots.seen[form.server].change(form.table, micros)

    def _together(self, form: _Form, updates: list[PlainUpdate]) -> list[SourceEvent] | list[Decoded]:
        if len(updates) >= _LEAST:
            try:
                return changes_of(form.table, form.plan, updates, keeps_null=self._rows.keeps_null)
            except MALFORMED:
                pass  # One of them is a fault.
        return [self._alone(form, update) for update in updates]

    def _alone(self, form: _Form, update: PlainUpdate) -> Decoded:
        sent = update.sent
        message = parse_line(sent, update.position) if isinstance(sent, bytes) else sent
        event = None if isinstance(message, FaultyEvent) else read_content(message)
        if not isinstance(event, DataEvent):
            raise TypeError(event)
        try:
            return self._rows.decode_plain(event, form.table, form.plan)
        except MALFORMED as error:
            return self._fault_of(event.message, error, event)


def _head_of(line: bytes) -> bytes:
    """Return the beginning of a line, which usually names the topic, and so its table."""
    return line[: line.find(b",")]


def _update_of(message: Message) -> PlainUpdate | None:
    """Return the update in a message; None if it may show more than a plain one."""
    envelope, block = part_of(message.value)
    if not isinstance(envelope, TypedEnvelope) or envelope.op != UPDATE.value or envelope.before is not None:
        return None
    source, row = envelope.source, envelope.after
    key, key_block = part_of(message.key)
    if row is None or source.snapshot not in _OF_NO_SNAPSHOT or not key or not isinstance(key, dict):
        return None
    fields = None if block is None else block.row_fields
    key_fields = None if key_block is None else key_block.fields
    form = (
        *(source.name, source.db, source.schema, source.table, source.version),
        *(tuple(key), tuple(row)),
        None if fields is None else fields.form,
        None if key_fields is None else key_fields.form,
    )
    position = message.position
    place = position if message.offset is None else message.offset
    return _update(form, message, (position, place, message.headers), envelope, key, row)


def _update(
    form: Hashable,
    sent: Message | bytes,
    arrival: tuple[int, int, Mapping[str, Any] | None],
    envelope: TypedEnvelope,
    key: Mapping[str, Any],
    row: Mapping[str, Any],
) -> PlainUpdate | None:
    """Return an update; None if its headers name a key, or its ordering key depends on other messages."""
    headers = arrival[2]
    if headers and (OLD_KEY in headers or NEW_KEY in headers):
        return None
    source = envelope.source
    sequence = pair_of(source.sequence)
    commit = None if sequence is None else sequence[0]
    if source.commit_lsn is not msgspec.UNSET and source.commit_lsn is not None:
        commit = source.commit_lsn
    if commit is None or sequence is None:
        return None
    order = None if envelope.transaction is None else envelope.transaction.total_order
    return PlainUpdate(form, sent, *arrival, envelope, key, row, commit, sequence, order)
