"""From the bytes of a file to the changes that its events tell."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from cdc_platform.errors import SourceError
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.datastream.events.envelope import from_text
from cdc_platform.sources.datastream.events.interpreter import Interpreter
from cdc_platform.sources.datastream.files.avro_files import AVRO_RECORD
from cdc_platform.sources.datastream.files.decoding import Decoding
from cdc_platform.sources.datastream.files.files import read_events
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.settings.declarations import declarations
from cdc_platform.sources.datastream.values.json_text import compact
from cdc_platform.sources.datastream.values.types import Fields

_NO_SCHEMAS: Final[Mapping[str, Fields]] = MappingProxyType({})
_END_OF_AVRO: Final = f",{compact(AVRO_RECORD)[1:]}"


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
    for event in read_events(data, decoding):
        yield event if isinstance(event, FaultyEvent) else interpreter.interpret(event)


def decode_text(
    settings: DatastreamSettings,
    text: str,
    position: int | None,
    borrowed: Callable[[], Mapping[str, Fields]] = dict,
) -> Iterator[SourceEvent | FaultyEvent]:
    """Yield what an event says of which only the text of its fault is left.

    Args:
        settings: the pipeline's.
        text: what `FaultyEvent.text` had: an envelope, or the event as its file had it.
        position: of the event in its file; None where the fault was the file's.
        borrowed: asked for the columns that other files tell, where the text does not.

    Raises:
        SourceUnreachable: such a file cannot be read now.
    """
    if position is None:
        return iter([FaultyEvent("The file is gone; write it again, and replay", text)])
    try:
        envelope = from_text(text)
    except ValueError:
        if text.endswith(_END_OF_AVRO):
            reason = "The event's Avro schema is gone with its file; write the file again, and replay"
            return iter([FaultyEvent(reason, text, 0)])
        try:
            return decode_file(settings, text.encode(), borrowed())
        except SourceError as error:
            if error.retryable:
                raise
            return iter([FaultyEvent(str(error), text, 0)])
    return iter([_tools(settings.to_options())[1].interpret(envelope)])


# A worker's process outlives its tasks, and what it knows of schemas serves the next files, too.
@lru_cache(maxsize=4)
def _tools(settings_json: str) -> tuple[Decoding, Interpreter]:
    settings = DatastreamSettings.from_options(settings_json)
    decoding = Decoding(
        declarations(settings.columns),
        table_name=settings.table_name,
        source=settings.source,
        bounds=settings.bounds,
    )
    return decoding, Interpreter(settings)
