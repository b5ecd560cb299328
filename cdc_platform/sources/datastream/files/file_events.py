"""Decoding of a file's bytes into the changes of its events."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from cdc_platform.errors import SourceError
from cdc_platform.model.stream.events import ChangeRun, FaultyEvent, SourceEvent
from cdc_platform.sources.datastream.events.envelope import from_text
from cdc_platform.sources.datastream.events.interpreter import Interpreter, results_of
from cdc_platform.sources.datastream.files.avro_files import AVRO_RECORD
from cdc_platform.sources.datastream.files.decoding import Decoding
from cdc_platform.sources.datastream.files.files import read_runs
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.settings.declarations import declarations
from cdc_platform.sources.datastream.values.json_text import compact
from cdc_platform.sources.datastream.values.types import Fields

_NO_SCHEMAS: Final[Mapping[str, Fields]] = MappingProxyType({})
_END_OF_AVRO: Final = f",{compact(AVRO_RECORD)[1:]}"


def decode_file(
    settings: DatastreamSettings, data: bytes, schemas: Mapping[str, Fields] = _NO_SCHEMAS
) -> Iterator[SourceEvent | FaultyEvent]:
    """Yield the changes of a file's events in order; data that cannot be read or used is a faulty event.

    Args:
        settings: settings of the source.
        data: content of the file.
        schemas: columns by `schema_key` from other files, for JSON.
    """
    for results in decode_runs(settings, data, schemas):
        events = [event for result in results for event in results_of(result)]
        yield from sorted(events, key=lambda event: -1 if event.position is None else event.position)


def decode_runs(
    settings: DatastreamSettings, data: bytes, schemas: Mapping[str, Fields] = _NO_SCHEMAS
) -> Iterator[Sequence[ChangeRun | FaultyEvent]]:
    """Yield the changes of the events of each block of a file, in any order, as `decode_file` does."""
    decoding, interpreter = _tools(settings.to_options())
    decoding = replace(decoding, schemas=schemas) if schemas else decoding
    for runs in read_runs(data, decoding):
        results: list[ChangeRun | FaultyEvent] = []
        for run in runs:
            results += (run,) if isinstance(run, FaultyEvent) else interpreter.interpret_run(run)
        yield results


def decode_text(
    settings: DatastreamSettings,
    text: str,
    position: int | None,
    borrowed: Callable[[], Mapping[str, Fields]] = dict,
) -> Iterator[SourceEvent | FaultyEvent]:
    """Yield the changes of an event from the text of its fault.

    Args:
        settings: settings of the source.
        text: the `FaultyEvent.text`: an envelope, or the event's text in its file.
        position: position of the event in its file; None for a fault of the whole file.
        borrowed: returns the columns from other files, for a text without them.

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
