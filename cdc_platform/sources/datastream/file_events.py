"""From the bytes of a file to the changes that its events tell."""

from collections.abc import Iterator
from functools import lru_cache

from cdc_platform.model.events import FaultyEvent, SourceEvent
from cdc_platform.sources.datastream.declarations import declarations
from cdc_platform.sources.datastream.decoding import Decoding
from cdc_platform.sources.datastream.files import read_events
from cdc_platform.sources.datastream.interpreter import Interpreter
from cdc_platform.sources.datastream.settings import DatastreamSettings


def decode_file(settings: DatastreamSettings, data: bytes) -> Iterator[SourceEvent | FaultyEvent]:
    """Yield what the events of a file tell, in its order; what cannot be read or used is a faulty event."""
    decoding, interpreter = _tools(settings.to_options())
    for found in read_events(data, decoding):
        yield found if isinstance(found, FaultyEvent) else interpreter.interpret(found)


# A worker's process outlives its tasks, and what it knows of schemas serves the next files, too.
@lru_cache(maxsize=4)
def _tools(settings_json: str) -> tuple[Decoding, Interpreter]:
    settings = DatastreamSettings.from_options(settings_json)
    return Decoding(declarations(settings.columns)), Interpreter(settings)
