"""Events of Datastream's files one by one, as tests compare them."""

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from msgspec import Struct

from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.datastream.events.event_runs import EventRun
from cdc_platform.sources.datastream.files.decoding import Decoding
from cdc_platform.sources.datastream.files.files import read_runs


class Envelope(Struct, frozen=True):
    """One decoded event: the same event in Avro and in JSON has the same envelope.

    Args:
        uuid: Datastream's identity of the event, shared by duplicates; empty if the event has none.
        read_timestamp_micros: time at which Datastream read it; None if the event does not state it.
        source_timestamp_micros: time of the change at the source, if the event states it.
        object_name: `<schema>_<table>` or similar; it is ambiguous, while `source_metadata` is not.
        read_method: Datastream's method of reading it, such as `mysql-cdc-binlog`.
        stream_name: the stream's resource name.
        schema_key: identity of the schema; empty if the event has none.
        sort_keys: strings and integers from the event; empty if the event has none (before mid-2021).
        source_metadata: the event's metadata, of JSON's types only.
        columns: name and type of each column of the payload's schema, in order.
        values: value of each column as `json.dumps` writes it into `SourceEvent`'s texts; None is NULL.
        position: number of the event in its file, counted from 0.
        has_payload: False for an event without a row.
    """

    uuid: str
    read_timestamp_micros: int | None
    source_timestamp_micros: int | None
    object_name: str
    read_method: str
    stream_name: str
    schema_key: str
    sort_keys: tuple[str | int, ...]
    source_metadata: Mapping[str, Any]
    columns: tuple[tuple[str, ColumnType], ...]
    values: Mapping[str, Any]
    position: int
    has_payload: bool = True

    @classmethod
    def of(cls, run: EventRun, place: int = 0) -> "Envelope":
        """Return one event of a run."""
        return cls(
            run.uuids[place],
            run.read_micros[place],
            run.source_micros[place],
            run.object_name,
            run.read_method,
            run.stream_names[place],
            run.schema_key,
            tuple(run.sort_keys[place]),
            run.metadata_of(place),
            run.columns,
            run.values_of(place),
            run.positions[place],
            run.has_payload,
        )

    def as_run(self) -> EventRun:
        """Return a run of the event alone."""
        return EventRun(
            self.object_name,
            self.read_method,
            self.schema_key,
            self.columns,
            self.has_payload,
            [self.uuid],
            [self.read_timestamp_micros],
            [self.source_timestamp_micros],
            [self.stream_name],
            [self.sort_keys],
            {name: [value] for name, value in self.source_metadata.items()},
            {name: [value] for name, value in self.values.items()},
            [self.values],
            [self.position],
        )


def read_events(source: bytes | BinaryIO, decoding: Decoding) -> Iterator[Envelope | FaultyEvent]:
    """Yield the events of a file in order; a fault of the rest of a file is the last one."""
    for runs in read_runs(source, decoding):
        events: list[Envelope | FaultyEvent] = []
        for run in runs:
            if isinstance(run, FaultyEvent):
                events.append(run)
            else:
                events += (Envelope.of(run, place) for place in range(len(run)))
        yield from sorted(events, key=lambda event: -1 if event.position is None else event.position)
