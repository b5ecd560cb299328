"""Updates from which nothing is to be learned, which most events of a stream are.

An update without the row before it, of a table and columns that were seen before, shows no replica identity,
no key change and no snapshot. What the decoder asks of each event has one answer for all of one form, so that
a typed envelope becomes a change at once.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from cdc_platform.model.base.malformed import MALFORMED
from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.rows.findings import Findings, is_unavailable, metadata_text
from cdc_platform.sources.debezium.rows.pairing import has_headers
from cdc_platform.sources.debezium.rows.plans import TablePlan
from cdc_platform.sources.debezium.rows.row_keys import key_json
from cdc_platform.sources.debezium.rows.rows import RowDecoder
from cdc_platform.sources.debezium.wire.contents import place_of
from cdc_platform.sources.debezium.wire.envelope import NEW_KEY, OLD_KEY, sequence_of
from cdc_platform.sources.debezium.wire.message_contents import UPDATE, DataEvent
from cdc_platform.sources.debezium.wire.messages import Message
from cdc_platform.sources.debezium.wire.positions import key_identity, key_of_place
from cdc_platform.sources.debezium.wire.schema_blocks import part_of
from cdc_platform.sources.debezium.wire.typed_envelope import TypedEnvelope
from cdc_platform.sources.json_codec import write_sorted

_UPDATE: Final = UPDATE.value
_OF_NO_SNAPSHOT: Final = (None, "false", "")


class _Known(NamedTuple):
    """What is known of the updates of one form: table of the lake, name in the database, and plan."""

    table: str
    name: str
    plan: TablePlan


class _Update(NamedTuple):
    """An update that may be plain; ``form`` is what updates share that are decoded alike."""

    form: Hashable
    envelope: TypedEnvelope
    key: Mapping[str, Any]
    row: Mapping[str, Any]


class PlainUpdates:
    """Knows the forms of the updates that a decoder has decoded with all its questions."""

    def __init__(self, rows: RowDecoder) -> None:
        self._rows = rows
        self._known: dict[Hashable, _Known] = {}

    def learn(self, event: DataEvent, table: str) -> None:
        """Take note of an event of a table of the lake that the decoder has decoded."""
        update = _update_of(event.message)
        if update is not None:
            plan = self._rows.planner.plan(event, table)
            self._known[update.form] = _Known(table, event.source.name, plan)

    def decode(self, message: Message) -> SourceEvent | None:
        """Return the change of a plain update; None for all other events, and for what cannot be used."""
        try:
            update = _update_of(message)
            known = None if update is None else self._known.get(update.form)
            if update is None or known is None or not self._is_plain(update, known):
                return None
            return self._change(message, update, known)
        except MALFORMED:
            return None  # every question is asked of it, and one of them shows what is wrong

    def _is_plain(self, update: _Update, known: _Known) -> bool:
        """Return whether nothing that was seen meanwhile makes a difference to an update."""
        state = self._rows.state
        snapshots = state.snapshots.seen.get(update.envelope.source.name or "")
        is_at_rest = snapshots is not None and snapshots.is_at_rest
        return is_at_rest and known.name not in state.full and known.name not in state.unusable

    def _change(self, message: Message, update: _Update, known: _Known) -> SourceEvent | None:
        envelope, plan = update.envelope, known.plan
        source, findings = envelope.source, Findings()
        server, schema, table = source.name or "", source.schema or "", source.table or ""
        sequence, commit = sequence_of(source.sequence), source.commit_lsn
        before, change = sequence or (None, None)
        commit = before if commit is None or commit is msgspec.UNSET else commit
        place = source.lsn if change is None else change
        if commit is None or place is None:
            return None  # it depends on the last snapshot
        transaction, order = place_of(envelope)
        lsn = change if source.lsn is None else source.lsn
        identity = [server, source.txId, lsn, order, schema, table, key_identity(update.key)]
        values = self._rows.values_of(update.row, plan, findings, is_unavailable)
        # All at once: a change that is put together in parts takes twice as long.
        decoded = SourceEvent(
            known.table,
            ModType.UPDATE,
            key_of_place(commit, place, order, message),
            write_sorted(identity),
            transaction,
            source.micros,
            plan.column_types,
            key_json(plan, update.key),
            values,
            unavailable_columns=tuple(findings.unavailable),
            metadata=metadata_text(
                _UPDATE, (schema, table, source.lsn, sequence, order), message.headers, findings
            ),
            position=message.position,
        )
        self._take_note(message, update, known, order)
        return decoded

    def _take_note(self, message: Message, update: _Update, known: _Known, order: int | None) -> None:
        """Remember where the update stands in its transaction, and when it changed its table."""
        state, source = self._rows.state, update.envelope.source
        server = source.name or ""
        if not (order is None or source.txId is None or source.lsn is None or has_headers(message)):
            state.pairer.remember_order(server, source.txId, order)
        state.snapshots.seen[server].change(known.table, source.micros)


def _update_of(message: Message) -> _Update | None:
    """Return the update that a message is; None where it has more to tell than a plain one."""
    envelope, block = part_of(message.value)
    if not isinstance(envelope, TypedEnvelope) or envelope.op != _UPDATE or envelope.before is not None:
        return None
    source, row = envelope.source, envelope.after
    key, key_block = part_of(message.key)
    if row is None or not key or source.snapshot not in _OF_NO_SNAPSHOT or not isinstance(key, dict):
        return None
    if message.headers and (OLD_KEY in message.headers or NEW_KEY in message.headers):
        return None
    fields = None if block is None else block.row_fields
    key_fields = None if key_block is None else key_block.fields
    form = (
        (source.name, source.db, source.schema, source.table, source.version),
        tuple(key),
        tuple(row) if fields is None else fields.form,
        None if key_fields is None else key_fields.form,
    )
    return _Update(form, envelope, key, row)
