"""Updates from which nothing is to be learned, which most events of a stream are.

An update without the row before it, of a table and columns that were seen before, shows no replica identity,
no key change and no snapshot. What the decoder asks of each event has one answer for all of one form, so that
a typed envelope becomes a change at once.
"""

from collections.abc import Hashable, Mapping
from typing import Any

import msgspec

from cdc_platform.model.base.malformed import MALFORMED
from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.rows.findings import Findings, Metadata, is_unavailable, run_of
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
from cdc_platform.sources.json_codec import write, write_sorted

_Known = tuple[str, str, TablePlan]
"""What the updates of one form share: table of the lake, name in the database, and plan."""
_Update = tuple[Hashable, TypedEnvelope, Mapping[str, Any], Mapping[str, Any]]
"""An update that may be plain: its form, which updates share that are decoded alike; envelope, key, row."""


class PlainUpdates:
    """Knows the forms of the updates that a decoder has decoded with all its questions."""

    def __init__(self, rows: RowDecoder) -> None:
        self._rows = rows
        self._known: dict[Hashable, _Known] = {}

    def learn(self, event: DataEvent, table: str) -> None:
        """Take note of an event of a table of the lake that the decoder has decoded."""
        if (update := _update_of(event.message)) is not None:
            self._known[update[0]] = table, event.source.name, self._rows.planner.plan(event, table)

    def decode(self, message: Message) -> SourceEvent | None:
        """Return the change of a plain update; None for all other events, and for what cannot be used."""
        try:
            update = _update_of(message)
            known = None if update is None else self._known.get(update[0])
            return None if update is None or known is None else self._change(message, update, known)
        except MALFORMED:
            return None  # every question is asked of it, and one of them shows what is wrong

    def _change(self, message: Message, update: _Update, known: _Known) -> SourceEvent | None:
        state, (_, envelope, key, row), (table, name, plan) = self._rows.state, update, known
        source = envelope.source
        server, schema, called = source.name or "", source.schema or "", source.table or ""
        snapshots = state.snapshots.seen.get(server)
        if snapshots is None or not snapshots.is_at_rest or name in state.full or name in state.unusable:
            return None
        sequence, commit = sequence_of(source.sequence), source.commit_lsn
        before, place = sequence or (None, None)
        commit = before if commit is None or commit is msgspec.UNSET else commit
        lsn, place = place if source.lsn is None else source.lsn, source.lsn if place is None else place
        if commit is None or place is None:
            return None  # its order depends on the last snapshot
        transaction, order = place_of(envelope)
        identity = [server, source.txId, lsn, order, schema, called, key_identity(key)]
        findings = Findings()
        values = self._rows.values_of(row, plan, findings, is_unavailable)
        facts = (UPDATE, schema, called, source.lsn or 0, sequence, order or 0, "", run_of(message.headers))
        metadata = Metadata(*facts, None, [], findings.null_or_default, findings.lossy_nulls)
        # All at once: a change that is put together in parts takes twice as long.
        decoded = SourceEvent(
            table,
            ModType.UPDATE,
            key_of_place(commit, place, order, message),
            write_sorted(identity),
            transaction,
            source.micros,
            plan.column_types,
            key_json(plan, key),
            values,
            unavailable_columns=tuple(findings.unavailable),
            metadata=write(metadata),
            position=message.position,
        )
        if not (order is None or source.txId is None or source.lsn is None or has_headers(message)):
            state.pairer.remember_order(server, source.txId, order)
        snapshots.change(table, source.micros)
        return decoded


def _update_of(message: Message) -> _Update | None:
    """Return the update that a message is; None where it has more to tell than a plain one."""
    envelope, block = part_of(message.value)
    if not isinstance(envelope, TypedEnvelope) or envelope.op != UPDATE or envelope.before is not None:
        return None
    source, row = envelope.source, envelope.after
    key, key_block = part_of(message.key)
    if row is None or not key or source.snapshot not in (None, "false", "") or not isinstance(key, dict):
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
    return form, envelope, key, row
