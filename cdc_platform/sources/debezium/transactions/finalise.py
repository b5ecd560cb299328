"""Changes that turn out to be others once all of a cycle has been read: halves come in any order."""

from collections.abc import Iterator
from dataclasses import replace

from cdc_platform.model.base.malformed import MALFORMED
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.rows.rows import RowDecoder, Unpaired
from cdc_platform.sources.debezium.transactions.arrivals import Passed
from cdc_platform.sources.debezium.transactions.key_order import in_turn
from cdc_platform.sources.debezium.wire.event_faults import fault_of
from cdc_platform.sources.event_batches import Released


def settled(passed: Passed, decoder: Decoder) -> Passed:
    """Return what passes, with inserted rows and shared keys as all messages of the cycle tell them."""
    replacements = dict(_others(decoder.rows))
    if replacements:
        events = tuple((_replaced(released, replacements), origin) for released, origin in passed.events)
        passed = replace(passed, events=events)
    return in_turn(passed, decoder.rows.befores)


def _others(rows: RowDecoder) -> Iterator[tuple[str, SourceEvent | FaultyEvent]]:
    """Yield the changes that are not as they came, by their identities."""
    for identity, unpaired in list(rows.unpaired.items()):
        outcome = _settled(rows, unpaired)
        if outcome != unpaired.change:
            yield identity, outcome


def _settled(rows: RowDecoder, unpaired: Unpaired) -> SourceEvent | FaultyEvent:
    try:
        return rows.settle(unpaired)
    except MALFORMED as error:
        if unpaired.event is None:
            # The deletion cannot be used, and lies in quarantine: the row is new as far as anybody knows.
            return unpaired.change
        event, change = unpaired.event, unpaired.change
        return fault_of(event.message, error, event, change.ordering_key, change.table)


def _replaced(released: Released, replacements: dict[str, SourceEvent | FaultyEvent]) -> Released:
    event = released.event
    if not isinstance(event, SourceEvent) or event.event_id not in replacements:
        return released
    return replace(released, event=replacements[event.event_id])
