"""From the bytes of a file to the changes that its events tell."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from cdc_platform.model.events import FaultyEvent, SourceEvent
from cdc_platform.sources.datastream.declarations import declarations
from cdc_platform.sources.datastream.decoding import Decoding
from cdc_platform.sources.datastream.files import read_events
from cdc_platform.sources.datastream.interpreter import Interpreter
from cdc_platform.sources.datastream.settings import DatastreamSettings
from cdc_platform.sources.datastream.types import Fields

_NO_SCHEMAS: Final[Mapping[str, Fields]] = MappingProxyType({})


def decode_file(
    settings: DatastreamSettings, data: bytes, schemas: Mapping[str, Fields] = _NO_SCHEMAS
) -> Iterator[SourceEvent | FaultyEvent]:
    """Yield what the events of a file tell, in its order; what cannot be read or used is a faulty event.

    Args:
        settings: the pipeline's.
        data: the file.
        schemas: columns by `schema_key` that other files tell; JSON needs them.
    """
    decoding, interpreter = _tools(settings.to_options())
    decoding = replace(decoding, schemas=schemas) if schemas else decoding
    for found in read_events(data, decoding):
        yield found if isinstance(found, FaultyEvent) else interpreter.interpret(found)


# A worker's process outlives its tasks, and what it knows of schemas serves the next files, too.
@lru_cache(maxsize=4)
def _tools(settings_json: str) -> tuple[Decoding, Interpreter]:
    settings = DatastreamSettings.from_options(settings_json)
    return Decoding(declarations(settings.columns)), Interpreter(settings)
