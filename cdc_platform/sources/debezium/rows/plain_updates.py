"""Updates from which nothing is to be learned, which most events of a stream are.

An update without the row before it, of a table and columns that were seen before, shows no replica identity,
no key change and no snapshot. What the decoder asks of each event has one answer for all of one form.
"""

from collections.abc import Hashable
from typing import NamedTuple

from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.sources.debezium.rows.plans import TablePlan
from cdc_platform.sources.debezium.rows.rows import RowDecoder
from cdc_platform.sources.debezium.wire.message_contents import UPDATE, DataEvent
from cdc_platform.sources.debezium.wire.positions import is_snapshot


class _Form(NamedTuple):
    """A table of the lake, and the plan of the events of one form."""

    table: str
    plan: TablePlan


class PlainUpdates:
    """Knows the forms of the updates that a decoder has decoded with all its questions."""

    def __init__(self, rows: RowDecoder) -> None:
        self._rows = rows
        self._forms: dict[Hashable, _Form] = {}

    def learn(self, event: DataEvent, table: str) -> None:
        """Take note of an event of a table of the lake that the decoder has decoded."""
        if _may_be_plain(event):
            self._forms[_form_of(event)] = _Form(table, self._rows.planner.plan(event, table))

    def decode(self, event: DataEvent) -> SourceEvent | None:
        """Return the change of a plain update; None for all other events.

        Raises:
            MessageUnusable: a value or the key cannot be used.
        """
        form = self._forms.get(_form_of(event)) if _may_be_plain(event) else None
        if form is None:
            return None
        state, source = self._rows.state, event.source
        if source.name in state.full or source.name in state.unusable:
            return None
        snapshots = state.snapshots.seen.get(source.server)
        if snapshots is None or not snapshots.is_at_rest:
            return None
        state.remember(event)
        change = self._rows.decode_plain(event, *form)
        snapshots.change(form.table, source)
        return change


def _may_be_plain(event: DataEvent) -> bool:
    has_images = event.key is not None and event.before is None and event.after is not None
    return event.op is UPDATE and has_images and not event.is_flat and not is_snapshot(event.source)


def _form_of(event: DataEvent) -> Hashable:
    """Return what events share that are decoded alike."""
    source, fields, key_fields = event.source, event.fields, event.key_fields
    return (
        source.server,
        source.database,
        source.schema,
        source.table,
        source.version,
        tuple(event.key or ()),
        tuple(event.after or ()) if fields is None else fields.form,
        None if key_fields is None else key_fields.form,
    )
