"""Changes of plain updates of one form, built column by column."""

from collections.abc import Hashable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.rows.findings import Place, is_unavailable, metadata_texts
from cdc_platform.sources.debezium.rows.plans import TablePlan
from cdc_platform.sources.debezium.rows.row_keys import key_texts
from cdc_platform.sources.debezium.rows.row_values import sent_values_texts
from cdc_platform.sources.debezium.wire.contents import place_of
from cdc_platform.sources.debezium.wire.message_contents import UPDATE
from cdc_platform.sources.debezium.wire.messages import Message
from cdc_platform.sources.debezium.wire.positions import key_identities, key_of_place
from cdc_platform.sources.debezium.wire.typed_envelope import TypedEnvelope, TypedSource
from cdc_platform.sources.json_codec import write_each


class PlainUpdate(NamedTuple):
    """An update that may be plain, and its message, or the line that this is parsed from.

    ``form`` is equal for updates that are decoded in the same way; ``commit`` is the first part of the
    ordering key, ``order`` the order in the transaction, and ``place`` offset or position of the message.
    """

    form: Hashable
    sent: Message | bytes
    position: int
    place: int
    headers: Mapping[str, Any] | None
    envelope: TypedEnvelope
    key: Mapping[str, Any]
    row: Mapping[str, Any]
    commit: int
    sequence: tuple[int | None, int]
    order: int | None


def changes_of(
    table: str, plan: TablePlan, updates: Sequence[PlainUpdate], *, keeps_null: bool
) -> list[SourceEvent]:
    """Return the change of each update of a table of the lake, all of one form.

    Raises:
        Unreadable: a value or the key of an update cannot be used.
    """
    sources = [update.envelope.source for update in updates]
    headers = [update.headers for update in updates]
    values, findings = sent_values_texts(
        plan, [update.row for update in updates], is_unavailable, keeps_null=keeps_null
    )
    columns = (
        repeat(table),
        repeat(ModType.UPDATE),
        [key_of_place(update.commit, update.sequence[1], update.order, update.place) for update in updates],
        _event_ids(updates, sources),
        [place_of(update.envelope)[0] for update in updates],
        [source.micros for source in sources],
        repeat(plan.column_types),
        key_texts(plan, [update.key for update in updates]),
        values,
        repeat(None),
        repeat(True),
        repeat(None),
        [tuple(found.unavailable) for found in findings],
        metadata_texts(UPDATE, zip(_places(updates, sources), headers, findings, strict=True)),
        [update.position for update in updates],
    )
    return list(map(SourceEvent._make, zip(*columns, strict=False)))


def _places(updates: Sequence[PlainUpdate], sources: Sequence[TypedSource]) -> list[Place]:
    _, schema, table = _names(sources[0])
    return [
        (schema, table, source.lsn, update.sequence, update.order)
        for update, source in zip(updates, sources, strict=True)
    ]


def _event_ids(updates: Sequence[PlainUpdate], sources: Sequence[TypedSource]) -> list[str]:
    identities = key_identities([update.key for update in updates])
    server, schema, table = _names(sources[0])
    lsns = [
        update.sequence[1] if source.lsn is None else source.lsn
        for update, source in zip(updates, sources, strict=True)
    ]
    parts = [
        (server, source.txId, lsn, update.order, schema, table, identity)
        for update, source, lsn, identity in zip(updates, sources, lsns, identities, strict=True)
    ]
    return write_each(parts, is_sorted=True)


def _names(source: TypedSource) -> tuple[str, str, str]:
    """Return the names that are the same in all sources of one form."""
    return source.name or "", source.schema or "", source.table or ""
