"""Interpretation of Datastream's events: the change of a row, or the reason why there is none."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.base.timestamps import is_moment
from cdc_platform.model.stream.events import ADDRESS, ADDRESS_ONLY, ORDERING_KEY, FaultyEvent, SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.datastream.events.envelope import Envelope, to_text
from cdc_platform.sources.datastream.events.layouts import ROWID, Layout, Layouts
from cdc_platform.sources.datastream.events.ordering_keys import (
    OrderingFacts,
    OrderRules,
    ordering_key,
    sequence_key,
)
from cdc_platform.sources.datastream.events.positions import PositionRules
from cdc_platform.sources.datastream.events.row_keys import digest_of, key_of_metadata, key_of_row
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.settings.declarations import event_identity
from cdc_platform.sources.datastream.settings.kinds import SourceKind, is_backfill, source_kind
from cdc_platform.sources.datastream.settings.policies import BackfillPolicy
from cdc_platform.sources.datastream.values.rows import problem_of
from cdc_platform.sources.json_codec import write

READ_METHOD: Final = "_read_method"
SCHEMA_KEY: Final = "_schema_key"
"""Metadata of every event: its read method and its schema."""
NOTE: Final = "_note"
"""Metadata of an event that contradicts itself: how it was interpreted."""

_READ: Final = "READ"
"""Change type that MongoDB's backfill may give to a document."""
_REMOVALS: Final = frozenset({"DELETE", "UPDATE-DELETE"})
_WRITES: Final[Mapping[str, ModType]] = {
    "": ModType.INSERT,
    "INSERT": ModType.INSERT,
    "CREATE": ModType.INSERT,
    _READ: ModType.SNAPSHOT,
    "UPDATE": ModType.UPDATE,
    "UPDATE-INSERT": ModType.UPDATE,
    "REPLACE": ModType.UPDATE,
}
_MARKS: Final[Mapping[str, bool]] = {"true": True, "false": False}
_WITH_OLD_ROW: Final = frozenset({SourceKind.MYSQL, SourceKind.ORACLE, SourceKind.SQLSERVER})


class Interpreter:
    """Interprets events by the settings of one pipeline; it caches only layouts.

    The result depends only on the event and the settings, so a replay of an event returns the same change,
    and the order of events does not matter.
    """

    def __init__(self, settings: DatastreamSettings) -> None:
        self._declared = settings.source
        self._layouts = Layouts(settings)
        self._rules = OrderRules(
            BackfillPolicy(settings.backfill_policy),
            settings.epoch_micros,
            PositionRules(settings.binlog_basenames, settings.order_by),
        )

    def interpret(self, envelope: Envelope) -> SourceEvent | FaultyEvent:
        """Return the change of an event, or the fault that makes it unusable."""
        try:
            return self._understand(envelope)
        except RecordUnreadable as error:
            return self._fault(envelope, str(error))
        except MALFORMED as error:
            return self._fault(envelope, problem_of(error))

    def _understand(self, envelope: Envelope) -> SourceEvent | FaultyEvent:
        metadata = envelope.source_metadata
        kind = source_kind(envelope.read_method, metadata, self._declared)
        change = str(metadata.get("change_type") or "").upper()
        says_deleted = _deletion_mark(metadata)
        is_removal = change in _REMOVALS or says_deleted is True
        if not is_removal and change not in _WRITES:
            raise RecordUnreadable(f"The event reports a change that this version does not know: {change!r}")
        _check_moment(envelope)
        event_id = envelope.uuid or digest_of(envelope)
        is_read = change == _READ or is_backfill(envelope.read_method)
        facts = OrderingFacts(kind, is_read, is_removal, event_id)
        layout = self._layouts.of(kind, envelope)
        if layout.sequence_column is None:
            key = ordering_key(envelope, facts, self._rules)
        else:
            key = sequence_key(envelope, facts, envelope.values.get(layout.sequence_column))
        if not is_removal:
            mod_type = ModType.SNAPSHOT if facts.is_backfill else _WRITES[change]
            return _write_event(envelope, facts, layout, mod_type, key)
        sent_keys = key_of_metadata(envelope, facts, layout)
        if sent_keys is None and _is_row_id_only(envelope, kind, layout):
            return _by_row_id(envelope, layout, key)
        note = _contradiction(change, says_deleted)
        return _delete_event(envelope, facts, layout, key, sent_keys, note)

    def _fault(self, envelope: Envelope, reason: str) -> FaultyEvent:
        try:
            kind = source_kind(envelope.read_method, envelope.source_metadata, self._declared)
            table: str | None = self._layouts.of(kind, envelope).table
        except (RecordUnreadable, *MALFORMED):
            table = envelope.object_name or None
        return FaultyEvent(
            reason=reason,
            text=to_text(envelope),
            position=envelope.position,
            table=table,
            event_id=event_identity(
                envelope.uuid or digest_of(envelope), envelope.object_name, envelope.source_metadata
            ),
            metadata=_metadata_text(envelope),
        )


def _write_event(
    envelope: Envelope, facts: OrderingFacts, layout: Layout, mod_type: ModType, key: str
) -> SourceEvent:
    values = envelope.values
    if not envelope.has_payload:
        raise RecordUnreadable("The event writes a row, but has no payload")
    new_values = {name: values.get(source) for name, source in layout.values}
    unavailable: tuple[str, ...] = ()
    if layout.protected and mod_type is ModType.UPDATE:
        unavailable = tuple(name for name, source in layout.protected if values.get(source) is None)
        for name in unavailable:
            new_values.pop(name, None)
    keys = key_of_row(envelope, facts, layout, mod_type)
    # Positional, in the order of `SourceEvent`: keywords would take a third of the time of this method.
    return SourceEvent(
        layout.table,
        mod_type,
        key,
        _identity(envelope, facts.event_id, layout),
        _transaction(envelope.source_metadata),
        envelope.source_timestamp_micros,
        layout.column_types,
        keys,
        write(new_values),
        None,
        not unavailable,
        None,
        unavailable,
        _metadata_text(envelope),
        envelope.position,
    )


def _delete_event(
    envelope: Envelope,
    facts: OrderingFacts,
    layout: Layout,
    key: str,
    sent_keys: str | None,
    note: str | None,
) -> SourceEvent:
    if sent_keys is None and not envelope.has_payload:
        raise RecordUnreadable("The event deletes a row, but has neither a payload nor the row's key")
    old_values = None
    if sent_keys is None and facts.kind in _WITH_OLD_ROW:
        old_values = write({name: envelope.values.get(source) for name, source in layout.values})
    return SourceEvent(
        table=layout.table,
        mod_type=ModType.DELETE,
        ordering_key=key,
        event_id=_identity(envelope, facts.event_id, layout),
        transaction_id=_transaction(envelope.source_metadata),
        source_micros=envelope.source_timestamp_micros,
        column_types=layout.column_types if sent_keys is None else "[]",
        keys=sent_keys or key_of_row(envelope, facts, layout, ModType.DELETE),
        new_values=None,
        old_values=old_values,
        metadata=_metadata_text(envelope, note),
        position=envelope.position,
    )


def _is_row_id_only(envelope: Envelope, kind: SourceKind, layout: Layout) -> bool:
    if kind is not SourceKind.ORACLE or layout.keyless is not None:
        return False
    values = envelope.values
    return bool(layout.missing_keys) or all(values.get(source) is None for _, source in layout.keys)


def _by_row_id(envelope: Envelope, layout: Layout, key: str) -> FaultyEvent:
    row_id = envelope.values.get(ROWID) or envelope.source_metadata.get(ADDRESS)
    metadata = {**envelope.source_metadata, ADDRESS: row_id, ORDERING_KEY: key}
    return FaultyEvent(
        reason=f"{ADDRESS_ONLY}: {row_id}",
        text=to_text(envelope),
        position=envelope.position,
        table=layout.table,
        event_id=_identity(envelope, envelope.uuid or digest_of(envelope), layout),
        metadata=write(metadata),
        source_micros=envelope.source_timestamp_micros,
    )


def _identity(envelope: Envelope, event_id: str, layout: Layout) -> str:
    """Return the same as `event_identity` for a table with a known name."""
    return f"{layout.source_name or envelope.object_name}/{event_id}"


def _check_moment(envelope: Envelope) -> None:
    """Reject an event of a time that the lake cannot store."""
    micros = envelope.source_timestamp_micros
    if micros is not None and not is_moment(micros):
        raise RecordUnreadable(
            f"`source_timestamp` is outside the years 1 to 9999, in microseconds: {micros}"
        )


def _deletion_mark(metadata: Mapping[str, Any]) -> bool | None:
    """Return the deletion mark of an event; None without one.

    Raises:
        RecordUnreadable: it is neither true nor false, so the event may delete its row or write it.
    """
    mark = metadata.get("is_deleted")
    if mark is None or isinstance(mark, bool):
        return mark
    if not isinstance(mark, str) or mark.lower() not in _MARKS:
        raise RecordUnreadable(f"`is_deleted` is neither true nor false, but says: {mark!r}")
    return _MARKS[mark.lower()]


def _contradiction(change: str, says_deleted: bool | None) -> str | None:
    """Return a note for an event whose type and deletion mark disagree; it deletes its row."""
    if says_deleted is None or not change or (change in _REMOVALS) == says_deleted:
        return None
    return f"change_type is {change}, but is_deleted is {says_deleted}; taken for a delete"


def _transaction(metadata: Mapping[str, Any]) -> str:
    transaction_id = metadata.get("tx_id")
    return "" if transaction_id is None else str(transaction_id)


def _metadata_text(envelope: Envelope, note: str | None = None) -> str:
    reading = _reading(envelope.read_method, envelope.schema_key, note)
    metadata = envelope.source_metadata
    return f"{reading},{write(metadata)[1:]}" if metadata else f"{reading}}}"


@lru_cache(maxsize=256)
def _reading(read_method: str, schema_key: str, note: str | None) -> str:
    """Return the beginning of the metadata's text, without its last brace."""
    reading = {READ_METHOD: read_method, SCHEMA_KEY: schema_key}
    return write(reading if note is None else {**reading, NOTE: note}).removesuffix("}")
