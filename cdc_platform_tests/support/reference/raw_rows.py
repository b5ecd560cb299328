"""Raw records of events, as a reader gives them out."""

from collections.abc import Iterable
from typing import Any, Final

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.event_batches import EventBatches

WINDOW: Final = ReadWindow("", 0, 1)
FILE: Final = SourceFile("file", "", 0, 0)


def raw_rows_of(batches: EventBatches, events: Iterable[SourceEvent | FaultyEvent]) -> list[dict[str, Any]]:
    """Return the raw records of events."""
    for event in events:
        batches.add(event, WINDOW, FILE)
    return [row for batch in batches.take() for row in batch.to_pylist()]
