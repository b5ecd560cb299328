"""Changes of rows from events that share table, schema and operation."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.stream.events import ADDRESS, ADDRESS_ONLY, ORDERING_KEY, ChangeRun, FaultyEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.datastream.events.envelope import to_text
from cdc_platform.sources.datastream.events.event_runs import EventRun
from cdc_platform.sources.datastream.events.layouts import DATA, ROWID, Form, Layout
from cdc_platform.sources.datastream.events.row_keys import keys_of_metadata, keys_of_rows
from cdc_platform.sources.datastream.settings.kinds import SourceKind
from cdc_platform.sources.json_codec import write, write_objects

READ_METHOD: Final = "_read_method"
SCHEMA_KEY: Final = "_schema_key"
"""Metadata of every event: its read method and its schema."""
NOTE: Final = "_note"
"""Metadata of an event that contradicts itself: how it was interpreted."""

_WITH_OLD_ROW: Final = frozenset({SourceKind.MYSQL, SourceKind.ORACLE, SourceKind.SQLSERVER})


class OrderedRun(NamedTuple):
    """Events of one form, with their identities and ordering keys."""

    events: EventRun
    form: Form
    event_ids: Sequence[str]
    ordering_keys: Sequence[str]

    def at(self, places: Sequence[int]) -> "OrderedRun":
        """Return the events at these places."""
        columns = ([values[place] for place in places] for values in (self.event_ids, self.ordering_keys))
        return OrderedRun(self.events.at(places), self.form, *columns)


def writes_of(run: OrderedRun) -> ChangeRun:
    """Return the changes that write rows.

    Raises:
        RecordUnreadable: an event has no row, or its row has no key.
    """
    events, layout = run.events, run.form.layout
    if not events.has_payload:
        raise RecordUnreadable("The event writes a row, but has no payload")
    is_update = run.form.mod_type is ModType.UPDATE
    if layout.is_document and not is_update and None in events.column(DATA):
        raise RecordUnreadable(f"The event writes a document, but has no data in the column `{DATA}`")
    names, columns = _value_columns(events, layout)
    unavailable: Sequence[tuple[str, ...]] = ()
    if layout.protected and is_update:
        unavailable = _unavailable(events, layout)
    new_values = write_objects(names, columns, len(events), unavailable)
    changes = _changes(run, keys_of_rows(events, run.form, run.event_ids))
    return replace(changes, new_values=new_values, unavailable_columns=unavailable)


def _unavailable(run: EventRun, layout: Layout) -> list[tuple[str, ...]]:
    """Return the columns of each update whose NULL stands for a value that was not sent; empty for none."""
    names = [name for name, _ in layout.protected]
    rows = zip(*(run.column(source) for _, source in layout.protected), strict=True)
    columns = [tuple(name for name, value in zip(names, row, strict=True) if value is None) for row in rows]
    return columns if any(columns) else []


def removals_of(run: OrderedRun) -> Iterator[ChangeRun | FaultyEvent]:
    """Yield the changes that delete rows, in any order, and the faults of events that state no key.

    The key is in the payload, or in the metadata, or only the row's address is known.

    Raises:
        RecordUnreadable: an event does not state the key.
    """
    sent_keys, in_payload, with_keys = keys_of_metadata(run.events, run.form), list[int](), list[int]()
    for place, (sent_key, is_address) in enumerate(zip(sent_keys, _have_address_only(run), strict=True)):
        if sent_key is None and is_address:
            yield _address_only_fault(run.at([place]))
        else:
            (in_payload if sent_key is None else with_keys).append(place)
    if with_keys:
        changes = _changes(run.at(with_keys), [sent_key for sent_key in sent_keys if sent_key is not None])
        yield replace(changes, column_types=run.form.layout.no_column_types)
    if in_payload:
        yield _deletes_of(run.at(in_payload))


def _deletes_of(run: OrderedRun) -> ChangeRun:
    """Return the changes that delete rows with the keys in their payloads.

    Raises:
        RecordUnreadable: an event does not state the key.
    """
    events, layout = run.events, run.form.layout
    if not events.has_payload:
        raise RecordUnreadable("The event deletes a row, but has neither a payload nor the row's key")
    changes = _changes(run, keys_of_rows(events, run.form, run.event_ids))
    if run.form.kind not in _WITH_OLD_ROW:
        return changes
    return replace(changes, old_values=write_objects(*_value_columns(events, layout), len(events)))


def _value_columns(run: EventRun, layout: Layout) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    return [name for name, _ in layout.values], [run.column(source) for _, source in layout.values]


def _changes(run: OrderedRun, row_keys: Sequence[str]) -> ChangeRun:
    """Return changes of rows with these keys, still without values."""
    events, form = run.events, run.form
    return ChangeRun(
        form.layout.table,
        form.mod_type,
        form.layout.column_types,
        run.ordering_keys,
        _identities(events, run.event_ids, form.layout),
        ["" if tx_id is None else str(tx_id) for tx_id in events.member("tx_id")],
        events.source_micros,
        row_keys,
        None,
        None,
        (),
        metadata_texts(events, form.note),
        events.positions,
    )


def _have_address_only(run: OrderedRun) -> Sequence[bool]:
    """Return of each event whether it knows its row by the address only."""
    events, layout = run.events, run.form.layout
    if run.form.kind is not SourceKind.ORACLE or layout.keyless is not None:
        return [False] * len(events)
    if layout.missing_keys or not layout.keys:
        return [True] * len(events)
    keys = zip(*(events.column(source) for _, source in layout.keys), strict=True)
    return [set(key) == {None} for key in keys]


def _address_only_fault(run: OrderedRun) -> FaultyEvent:
    """Return the fault of the only event of a run, which knows its row by the address only."""
    events, metadata = run.events, run.events.metadata_of(0)
    row_id = events.column(ROWID)[0] or metadata.get(ADDRESS)
    metadata |= {ADDRESS: row_id, ORDERING_KEY: run.ordering_keys[0]}
    return FaultyEvent(
        reason=f"{ADDRESS_ONLY}: {row_id}",
        text=to_text(events),
        position=events.positions[0],
        table=run.form.layout.table,
        event_id=_identities(events, run.event_ids, run.form.layout)[0],
        metadata=write(metadata),
        source_micros=events.source_micros[0],
        column_types=run.form.layout.no_column_types,
    )


def _identities(run: EventRun, event_ids: Sequence[str], layout: Layout) -> list[str]:
    """Return the same as `event_identity` for events of a table with a known name."""
    table = layout.source_name or run.object_name
    return [f"{table}/{event_id}" for event_id in event_ids]


def metadata_texts(run: EventRun, note: str | None = None) -> Sequence[str]:
    """Return the metadata of events with their read method and schema, as JSON objects."""
    entries = {READ_METHOD: run.read_method, SCHEMA_KEY: run.schema_key} | ({NOTE: note} if note else {})
    own = {name: values for name, values in run.metadata.items() if name not in entries}
    columns = [*([value] * len(run) for value in entries.values()), *own.values()]
    return write_objects([*entries, *own], columns, len(run))
