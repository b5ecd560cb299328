"""Changes that later messages of a split alter: the halves of a key change come in any order."""

from collections.abc import Iterator, Mapping, Sequence

from cdc_platform.model.base.malformed import MALFORMED
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.debezium.rows.rows import RowDecoder, Unpaired
from cdc_platform.sources.debezium.transactions.key_order import ordering_keys
from cdc_platform.sources.debezium.wire.event_faults import fault_of

Event = SourceEvent | FaultyEvent


def altered_events(events: Sequence[Event], rows: RowDecoder) -> Mapping[str, Event]:
    """Return the altered events by their identities: inserted rows and shared keys.

    Args:
        events: all events of whole transactions.
        rows: the decoder of the events.
    """
    altered = dict(_completed_events(rows))
    current = [_replaced(event, altered) for event in events] if altered else events
    for event, ordering_key in ordering_keys(current, rows.befores):
        altered[event.event_id] = event._replace(ordering_key=ordering_key)
    return altered


def _completed_events(rows: RowDecoder) -> Iterator[tuple[str, Event]]:
    for identity, unpaired in list(rows.unpaired.items()):
        outcome = _finalised(rows, unpaired)
        if outcome != unpaired.change:
            yield identity, outcome


def _finalised(rows: RowDecoder, unpaired: Unpaired) -> Event:
    try:
        return rows.finalise(unpaired)
    except MALFORMED as error:
        if unpaired.event is None:
            # The deletion is unusable and in quarantine, so the row counts as new.
            return unpaired.change
        event, change = unpaired.event, unpaired.change
        return fault_of(event.message, error, event, change.ordering_key, change.table)


def _replaced(event: Event, altered: Mapping[str, Event]) -> Event:
    return altered.get(event.event_id, event) if isinstance(event, SourceEvent) else event
