"""Raw records of events, as fuzzed decoders make them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.event_batches import EventBatches

GOLDEN: Final = Path(__file__).parents[1] / "golden"
WINDOW: Final = ReadWindow("", 0, 1)
FILE: Final = SourceFile("file", "", 0, 0)


def rows_of(events: Iterable[SourceEvent | FaultyEvent]) -> list[dict[str, Any]]:
    """Return the raw records of events."""
    batches = EventBatches(1)
    for event in events:
        batches.add(event, WINDOW, FILE)
    return sound_rows(batches.take())


def sound_rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return the rows of batches: changes, or faults that say why and of what."""
    rows: list[dict[str, Any]] = [row for batch in batches for row in batch.to_pylist()]
    for row in rows:
        fault = row["event"]["fault"]
        assert (fault is None) == (row["mod_type"] is not None)
        assert fault is None or (fault and row["event"]["text"] is not None)
        for text in (*row["mods"][0].values(), row["event"]["metadata"], row["column_types"]):
            assert text is None or json.loads(text) is not None or fault
    return rows
