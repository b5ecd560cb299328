"""Changes from the rows of events: their keys, values and values that were not sent."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from cdc_platform.model.rows.keyless import keyless_keys
from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.rows.findings import (
    Findings,
    complete_row,
    is_unsent_in_insert,
    is_unsent_in_update,
    is_unsent_under_full,
    metadata_of,
)
from cdc_platform.sources.debezium.rows.identity import check_key_types
from cdc_platform.sources.debezium.rows.pairing import Identity, identity_of
from cdc_platform.sources.debezium.rows.plain_columns import PlainForm, PlainRun
from cdc_platform.sources.debezium.rows.plans import Planner, TablePlan
from cdc_platform.sources.debezium.rows.row_values import (
    IsUnsent,
    header_key,
    key_json,
    old_key_of,
    sent_values_json,
    values_json,
)
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.connector import Strategy
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.values.detector import VALUE
from cdc_platform.sources.debezium.wire.message_contents import (
    CREATE,
    DELETE,
    MOD_TYPES,
    TRUNCATE,
    UPDATE,
    DataEvent,
    MessageUnusable,
)
from cdc_platform.sources.debezium.wire.positions import event_id, is_snapshot, ordering_key

_NO_KEY: Final = "{}"
_OF_FRAME: Final = SourceEvent._fields.index("keys")
"""Number of fields of a change before those of its row."""


@dataclass(frozen=True, slots=True)
class UnpairedInsert:
    """An inserted row that may have had another key, which only a later message can show.

    ``event`` is None if that key implies nothing about the row's values; ``is_full`` is that of `decode`.
    """

    change: SourceEvent
    plan: TablePlan
    identity: Identity | None
    event: DataEvent | None
    is_full: bool


@dataclass(slots=True)
class RowDecoder:
    """Decodes data events into changes.

    ``unpaired`` are the inserted rows that are not certainly new, by their identities.
    ``befores`` has the values of images before a change, as JSON by event, if they may not be the whole row.
    """

    settings: DebeziumSettings
    planner: Planner
    state: DecoderState
    unpaired: dict[str, UnpairedInsert] = field(default_factory=dict)
    befores: dict[str, str] = field(default_factory=dict)

    def decode(self, event: DataEvent, table: str, is_full: bool) -> Sequence[SourceEvent]:
        """Return the changes of an event: two for an update of a row without a key, which is replaced.

        ``table`` is the table's name in the lake. ``is_full`` means that its replica identity is FULL: the
        image before a change is the whole row, and every value is sent.

        Raises:
            MessageUnusable: a value or the key cannot be used, or the key has another type than before.
        """
        if event.op is TRUNCATE:
            return [self._frame(event, table, "[]")._replace(metadata=metadata_of(event, Findings()))]
        plan = self.planner.plan(event, table)
        check_key_types(self.state.key_types, plan.key_types, table)
        change = self._frame(event, table, plan.column_types)
        if not plan.keys:
            return list(self._without_key(event, plan, change))
        old_key = old_key_of(event, plan, is_full=is_full)
        if old_key is None:
            return [self._with_key(event, plan, change, is_full=is_full)]
        return list(self._key_change(event, plan, change, old_key, is_full=is_full))

    def decode_plain(self, event: DataEvent, form: PlainForm) -> SourceEvent:
        """Return the change of a plain event of a form.

        Raises:
            MessageUnusable: a value or the key cannot be used.
        """
        frame = self._frame(event, form.table, form.plan.column_types)
        return self._with_key(event, form.plan, frame, is_full=form.is_full)

    def finalise(self, insert: UnpairedInsert) -> SourceEvent:
        """Return the change of an inserted row with the present knowledge of its old key.

        Raises:
            MessageUnusable: it has changed its key, and the settings do not state what null means in it.
        """
        previous = None if insert.identity is None else self.state.pairer.deleted_at(insert.identity)
        if insert.event is None:
            keys, change = header_key(insert.plan, previous), insert.change
            return change if keys == change.keys else change._replace(previous_keys=keys)
        return self._with_key(insert.event, insert.plan, insert.change, is_full=insert.is_full)

    def _frame(self, event: DataEvent, table: str, column_types: str) -> SourceEvent:
        """Return the change without its row and metadata."""
        source = event.source
        return SourceEvent(
            table,
            MOD_TYPES[event.op],
            ordering_key(event, self.state.floor_of(source)),
            event_id(event, source.table),
            "" if is_snapshot(source) else event.transaction_id,
            source.micros,
            column_types,
            keys=_NO_KEY,
            new_values=None,
            position=event.message.position,
        )

    def _with_key(
        self, event: DataEvent, plan: TablePlan, change: SourceEvent, *, is_full: bool
    ) -> SourceEvent:
        keys, findings = key_json(plan, event.key or {}), Findings()
        before = event.before if is_full and event.before is not None and not event.is_flat else None
        old_values = None if before is None else values_json(plan, before)
        if before is None and event.before is not None and not event.is_flat:
            self.remember_before(change.event_id, plan, event.before)
        if event.op is DELETE:
            metadata = metadata_of(event, findings, header_key(plan, event.new_key))
            return change._replace(keys=keys, old_values=old_values, metadata=metadata)
        previous = self.state.pairer.old_key(event)
        # An update without a row before contradicts FULL, even if the settings state it.
        sends_all = is_full and (event.op is not UPDATE or event.before is not None or event.is_flat)
        is_unsent = partial(is_unsent_under_full, before) if sends_all else is_unsent_in_update
        new_values = self._new_values(event, plan, previous, findings, is_unsent)
        # By position, because `_replace` would take several times as long.
        event_with_key = SourceEvent._make(
            (
                *(*change[:_OF_FRAME], keys, new_values, old_values, header_key(plan, previous)),
                *(tuple(findings.unavailable), metadata_of(event, findings), change.position),
            )
        )
        if event.op is CREATE and (previous is not None or not self.state.pairer.is_new(event)):
            is_doubtful = _is_doubtful(event, plan)
            if is_doubtful:
                self.state.use.depend(event.source.name, is_doubtful=True)
            if previous is None:
                doubtful, identity = event if is_doubtful else None, identity_of(event)
                insert = UnpairedInsert(event_with_key, plan, identity, doubtful, is_full)
                self.unpaired[event_with_key.event_id] = insert
        return event_with_key

    def note_unpaired(self, run: PlainRun) -> None:
        """Take note of the inserted rows of a run that may have had another key."""
        for change, identity in zip(run.events(), run.identities, strict=False):
            self.unpaired[change.event_id] = UnpairedInsert(change, run.plan, identity, None, False)

    def remember_before(self, event_id: str, plan: TablePlan, before: Mapping[str, Any]) -> None:
        """Note the values that identify the row before a change; most images have none besides the key."""
        members = {
            name: value for name, value in before.items() if name not in plan.keys and name in plan.columns
        }
        content = {name: value for name, value in members.items() if plan.columns[name].has_content(value)}
        # An unreadable value is not a reason to reject an event that is complete without it.
        with suppress(MessageUnusable):
            if content:
                self.befores[event_id] = values_json(plan, content)

    def _key_change(
        self,
        event: DataEvent,
        plan: TablePlan,
        change: SourceEvent,
        old_key: Mapping[str, Any],
        *,
        is_full: bool,
    ) -> Iterator[SourceEvent]:
        """Yield the halves of a key change that arrived as one update."""
        deletion = replace(event, op=DELETE, key=old_key, new_key=event.key)
        yield self._with_key(deletion, plan, change._replace(mod_type=ModType.DELETE), is_full=is_full)
        insert = replace(event, op=CREATE, old_key=old_key)
        yield self._with_key(insert, plan, _second(change)._replace(mod_type=ModType.INSERT), is_full=is_full)

    def _new_values(
        self,
        event: DataEvent,
        plan: TablePlan,
        previous: Mapping[str, Any] | None,
        findings: Findings,
        is_unsent: IsUnsent,
    ) -> str:
        """Return the row after the change; an INSERT has all values unless a row got another key.

        If that is unknown, a marker counts as a marker, and null as NULL.
        """
        if event.after is None:
            raise MessageUnusable(f"The event with the operation {event.op.value!r} has no `after`.")
        if not (event.op is UPDATE or (event.op is CREATE and previous is not None)):
            may_move = event.op is CREATE and bool(plan.keys) and not self.state.pairer.is_new(event)
            is_unsent = partial(is_unsent_in_insert, not may_move)
        keeps_null = self.settings.strategy == Strategy.VETO
        return sent_values_json(plan, event.after, findings, is_unsent, keeps_null=keeps_null)

    def _without_key(self, event: DataEvent, plan: TablePlan, change: SourceEvent) -> Iterator[SourceEvent]:
        """Yield the removal of a row equal to the one before, and the addition of the one after."""
        if event.op in (UPDATE, DELETE):
            if event.before is None:
                raise MessageUnusable(
                    "The row has no key, and the event does not say what the row was before. Run ALTER TABLE "
                    "... REPLICA IDENTITY FULL, or give the table a primary key."
                )
            old_values, metadata = values_json(plan, event.before), metadata_of(event, Findings())
            yield change._replace(
                mod_type=ModType.DELETE,
                keys=keyless_keys(json.loads(old_values)),
                old_values=old_values,
                metadata=metadata,
            )
        if event.op is DELETE:
            return
        findings, after, is_update = Findings(), event.after, event.op is UPDATE
        if is_update and after is not None and event.before is not None:
            after = complete_row(plan, after, event.before)
        insert = replace(event, op=CREATE, after=after)
        new_values = self._new_values(insert, plan, None, findings, lambda *_: False)
        row_change = _second(change) if is_update else change
        yield row_change._replace(
            mod_type=ModType.INSERT if is_update else change.mod_type,
            keys=keyless_keys(json.loads(new_values)),
            new_values=new_values,
            metadata=metadata_of(event, findings),
        )


def _is_doubtful(event: DataEvent, plan: TablePlan) -> bool:
    """Return whether a value of a row may not have been sent, if the row had another key."""
    values = [(plan.columns.get(name), value) for name, value in (event.after or {}).items()]
    return any(column is not None and column.detector.judge(value) is not VALUE for column, value in values)


def _second(change: SourceEvent) -> SourceEvent:
    """Return the second change of one event."""
    return change._replace(ordering_key=f"{change.ordering_key} 1", event_id=f"{change.event_id}+")
