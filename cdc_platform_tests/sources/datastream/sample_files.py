"""The files in `samples/datastream`, as envelopes, by a decoder that knows just their types."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import fastavro

from cdc_platform.model.timestamps import from_datetime, to_rfc3339
from cdc_platform.sources.datastream.envelope import Envelope
from cdc_platform_tests.sources.datastream.generated_events import to_envelope

SAMPLES: Final = Path(__file__).parents[2] / "samples" / "datastream"
STAMPS: Final = ("read_timestamp", "source_timestamp")


def read_sample(name: str) -> list[Envelope]:
    """Return the events of a sample file, named by its path below the folder of samples."""
    path = SAMPLES / name
    events = _avro_events(path) if path.suffix == ".avro" else _json_events(path)
    return [to_envelope(event, position) for position, event in enumerate(events)]


def _avro_events(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for record in fastavro.reader(file):
            assert isinstance(record, dict)
            payload = {name: _plain(value) for name, value in record["payload"].items()}
            stamps = {name: from_datetime(record[name]) // 1000 for name in STAMPS}
            yield {**record, **stamps, "payload": payload}


def _json_events(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        stamps = {name: _milliseconds(event[name]) for name in STAMPS}
        yield {**event, **stamps}


def _milliseconds(text: str) -> int:
    """All renderings are of UTC, with and without saying so."""
    return from_datetime(datetime.fromisoformat(text).replace(tzinfo=UTC)) // 1000


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_rfc3339(from_datetime(value))
    return f"{value.normalize():f}" if isinstance(value, Decimal) else value
