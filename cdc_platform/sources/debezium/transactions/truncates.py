"""Truncates among partitions that are read side by side: rows from before one may come after it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.transactions.arrivals import Passed
from cdc_platform.sources.event_batches import Released

GONE: Final = "Its table was truncated after it, and the truncate was read first: the row is gone"


def refuse_truncated(passed: Passed) -> Passed:
    """Return what passes, with a fault for rows that truncates of former cycles have taken away.

    Rows of a snapshot belong to no transaction, so none of them keeps a truncate in another partition
    waiting, as those of transactions do.
    """
    before = passed.until.truncated
    newest = dict(before)
    for table, ordering_key in _truncates(passed):
        newest[table] = max(ordering_key, newest.get(table, ""))
    events = tuple((_judged(released, before), origin) for released, origin in passed.events)
    return replace(passed, events=events, until=replace(passed.until, truncated=newest))


def _truncates(passed: Passed) -> Iterator[tuple[str, str]]:
    """Yield table and ordering key of truncates that enter the log; one beside a faulty event does not."""
    faulty = {
        released.transaction_id
        for released, _ in passed.events
        if released.transaction_id and (released.fault or not isinstance(released.event, SourceEvent))
    }
    for released, _ in passed.events:
        event, enters = released.event, released.fault is None and released.transaction_id not in faulty
        if enters and isinstance(event, SourceEvent) and event.mod_type is ModType.TRUNCATE:
            yield event.table, event.ordering_key


def _judged(released: Released, truncated: Mapping[str, str]) -> Released:
    event = released.event
    if released.fault is not None or not isinstance(event, SourceEvent):
        return released
    return replace(released, fault=GONE) if event.ordering_key < truncated.get(event.table, "") else released
