"""Decoding of a file's bytes into the changes of its events."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Final

from cdc_platform.errors import SourceError
from cdc_platform.model.stream.events import ChangeRun, FaultyEvent, SourceEvent
from cdc_platform.sources.datastream.events.envelope import from_text
from cdc_platform.sources.datastream.events.event_runs import EventRun
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


class FileDecoder:
    """Decodes files by the settings of one pipeline; it caches what it learns of schemas."""

    def __init__(self, settings: DatastreamSettings) -> None:
        self._decoding = Decoding(
            declarations(settings.columns),
            table_name=settings.table_name,
            source=settings.source,
            bounds=settings.bounds,
        )
        self.interpreter = Interpreter(settings)

    def runs(
        self, data: bytes, schemas: Mapping[str, Fields] = _NO_SCHEMAS
    ) -> Iterator[ChangeRun | FaultyEvent]:
        """Yield the changes of a file's events, block by block, in any order within a block.

        Args:
            data: content of the file.
            schemas: columns by `schema_key` from other files, for JSON.
        """
        for runs in self._blocks(data, schemas):
            yield from runs

    def events(
        self, data: bytes, schemas: Mapping[str, Fields] = _NO_SCHEMAS
    ) -> Iterator[SourceEvent | FaultyEvent]:
        """Yield the changes of a file's events one by one, in order."""
        for runs in self._blocks(data, schemas):
            events = [event for run in runs for event in results_of(run)]
            yield from sorted(events, key=lambda event: -1 if event.position is None else event.position)

    def _blocks(
        self, data: bytes, schemas: Mapping[str, Fields]
    ) -> Iterator[Iterator[ChangeRun | FaultyEvent]]:
        for runs in read_runs(data, replace(self._decoding, schemas=schemas)):
            yield chain.from_iterable(map(self._interpret, runs))

    def _interpret(self, run: EventRun | FaultyEvent) -> Iterable[ChangeRun | FaultyEvent]:
        return (run,) if isinstance(run, FaultyEvent) else self.interpreter.interpret_run(run)


# A worker's process outlives its tasks, and what it knows of schemas serves the next files, too.
@lru_cache(maxsize=4)
def file_decoder(settings_json: str) -> FileDecoder:
    """Return the decoder for settings, as `DatastreamSettings.to_options` returns them."""
    return FileDecoder(DatastreamSettings.from_options(settings_json))


def decode_file(
    settings: DatastreamSettings, data: bytes, schemas: Mapping[str, Fields] = _NO_SCHEMAS
) -> Iterator[SourceEvent | FaultyEvent]:
    """Yield the changes of a file's events in order; data that cannot be read or used is a faulty event.

    Args:
        settings: settings of the source.
        data: content of the file.
        schemas: columns by `schema_key` from other files, for JSON.
    """
    return file_decoder(settings.to_options()).events(data, schemas)


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
        event = from_text(text)
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
    return iter([file_decoder(settings.to_options()).interpreter.interpret(event)])
