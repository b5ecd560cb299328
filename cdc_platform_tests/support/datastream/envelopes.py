"""Events of Datastream's files one by one, as tests compare them."""

from collections.abc import Iterator
from typing import BinaryIO

from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.datastream.events.envelope import Envelope
from cdc_platform.sources.datastream.files.decoding import Decoding
from cdc_platform.sources.datastream.files.files import read_runs


def read_events(source: bytes | BinaryIO, decoding: Decoding) -> Iterator[Envelope | FaultyEvent]:
    """Yield the events of a file in order; a fault of the rest of a file is the last one."""
    for runs in read_runs(source, decoding):
        events: list[Envelope | FaultyEvent] = []
        for run in runs:
            if isinstance(run, FaultyEvent):
                events.append(run)
            else:
                events += (run.envelope(place) for place in range(len(run)))
        yield from sorted(events, key=lambda event: -1 if event.position is None else event.position)
