"""Events of Datastream with the same columns, stored by column."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from cdc_platform.sources.datastream.values.rows import Columns

Pick = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class EventRun:
    """Events of one object, schema and read method, with the same members of metadata.

    The same event in Avro and in JSON has the same fields. A sequence has one value for each event, and a
    mapping such a sequence for each column of the payloads or member of the metadata.

    Args:
        object_name: `<schema>_<table>` or similar; it is ambiguous, while `metadata` is not.
        read_method: Datastream's method of reading them, such as `mysql-cdc-binlog`.
        schema_key: identity of the schema; empty if the events have none.
        columns: name and type of each column of the payloads' schema, in order.
        has_payload: False for events without rows.
        uuids: Datastream's identities of the events, shared by duplicates; empty for an event without one.
        read_micros: times at which Datastream read them; None if an event does not state it.
        source_micros: times of the changes at the source; None if an event does not state it.
        stream_names: the streams' resource names.
        sort_keys: strings and integers from the events; empty if one has none (before mid-2021).
        metadata: the events' metadata, of JSON's types only.
        values: values of the columns as `json.dumps` writes them into `SourceEvent`'s texts; None is NULL.
        names: the columns of each payload, None without one; columns that it lacks are null.
        positions: numbers of the events in their file, counted from 0.
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

    def values_of(self, place: int) -> dict[str, Any]:
        """Return the values of one payload."""
        return {name: self.values[name][place] for name in self.names[place] or ()}
