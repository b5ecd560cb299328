"""Events of Datastream with the same columns, stored by column."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from cdc_platform.sources.datastream.events.envelope import Envelope
from cdc_platform.sources.datastream.values.rows import Columns

Pick = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class EventRun:
    """Events of one object, schema and read method, with the same members of metadata.

    The fields are those of `Envelope`. A sequence has one value for each event, and a mapping such a sequence
    for each column of the payloads or member of the metadata. ``names`` has the columns of each payload, None
    without one; columns that it lacks are null.
    """

    object_name: str
    read_method: str
    schema_key: str
    columns: Columns
    has_payload: bool
    uuids: Sequence[str]
    read_micros: Sequence[int | None]
    source_micros: Sequence[int | None]
    stream_names: Sequence[str]
    sort_keys: Sequence[Sequence[str | int]]
    metadata: Mapping[str, Sequence[Any]]
    values: Mapping[str, Sequence[Any]]
    names: Sequence[Collection[str] | None]
    positions: Sequence[int]

    @classmethod
    def of(cls, envelope: Envelope) -> "EventRun":
        """Return a run of one event."""
        return cls(
            envelope.object_name,
            envelope.read_method,
            envelope.schema_key,
            envelope.columns,
            envelope.has_payload,
            [envelope.uuid],
            [envelope.read_timestamp_micros],
            [envelope.source_timestamp_micros],
            [envelope.stream_name],
            [envelope.sort_keys],
            {name: [value] for name, value in envelope.source_metadata.items()},
            {name: [value] for name, value in envelope.values.items()},
            [envelope.values],
            [envelope.position],
        )

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, places: slice) -> "EventRun":
        return self._picked(itemgetter(places))

    def at(self, places: Sequence[int]) -> "EventRun":
        """Return the events at these places."""
        if len(places) == len(self):
            return self
        return self[places[0] : places[0] + 1] if len(places) == 1 else self._picked(itemgetter(*places))

    def _picked(self, pick: Pick) -> "EventRun":
        return EventRun(
            self.object_name,
            self.read_method,
            self.schema_key,
            self.columns,
            self.has_payload,
            pick(self.uuids),
            pick(self.read_micros),
            pick(self.source_micros),
            pick(self.stream_names),
            pick(self.sort_keys),
            {name: pick(values) for name, values in self.metadata.items()},
            {name: pick(values) for name, values in self.values.items()},
            pick(self.names),
            pick(self.positions),
        )

    def member(self, name: str) -> Sequence[Any]:
        """Return the values of a member of the metadata; nulls if the events lack it."""
        values = self.metadata.get(name)
        return [None] * len(self) if values is None else values

    def column(self, name: str) -> Sequence[Any]:
        """Return the values of a column of the payload; nulls if the events lack it."""
        values = self.values.get(name)
        return [None] * len(self) if values is None else values

    def metadata_of(self, place: int) -> dict[str, Any]:
        """Return the metadata of one event."""
        return {name: values[place] for name, values in self.metadata.items()}

    def envelope(self, place: int) -> Envelope:
        """Return one event."""
        return Envelope(
            self.uuids[place],
            self.read_micros[place],
            self.source_micros[place],
            self.object_name,
            self.read_method,
            self.stream_names[place],
            self.schema_key,
            tuple(self.sort_keys[place]),
            self.metadata_of(place),
            self.columns,
            {name: self.values[name][place] for name in self.names[place] or ()},
            self.positions[place],
            self.has_payload,
        )
