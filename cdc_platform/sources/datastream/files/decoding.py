"""Further input of the decoders of both formats, and the parts of an event that they share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.datastream.settings.bounds import DEFAULT_BOUNDS, Bounds
from cdc_platform.sources.datastream.settings.declarations import (
    ALL_TABLES,
    Declarations,
    event_identity,
    name_parts,
    names_of_table,
)
from cdc_platform.sources.datastream.settings.kinds import SourceKind, source_kind
from cdc_platform.sources.datastream.settings.table_names import name_by_template, table_name
from cdc_platform.sources.datastream.values.json_text import compact
from cdc_platform.sources.datastream.values.moments import moment_micros, plain_micros
from cdc_platform.sources.datastream.values.types import Fields, FieldType

# Changes of one transaction share their moments, and so do events that were read at once.
_moment_micros: Final = lru_cache(maxsize=256)(moment_micros)
NO_DECLARATIONS: Final[Mapping[str, FieldType]] = MappingProxyType({})
_TEXTS_AND_NUMBERS: Final = frozenset({str, int})
_KEY_TYPES: Final = _TEXTS_AND_NUMBERS | {type(None)}
_NO_KEYS: Final = frozenset({object})
MICROS_PER_MILLI: Final = 1000
_FEW: Final = 8
"""Moments that take less time one by one than together."""
_MAX_BITS: Final = 128
"""Maximum bits of a number of milliseconds that a message can show; the range of years is checked later."""


@dataclass(frozen=True)
class Decoding:
    """Facts about types that the decoding of a file needs besides the file.

    Args:
        declared: types that the user declares, by table and column, for both formats.
        schemas: columns by `schema_key`, from Avro schema files or from Avro events, for JSON.
        table_name: the setting for the names of tables.
        source: the setting that states the database of all events.
        bounds: limits for reading a file.
    """

    declared: Declarations = field(default_factory=dict)
    schemas: Mapping[str, Fields] = field(default_factory=dict)
    table_name: str | None = None
    source: str | None = None
    bounds: Bounds = DEFAULT_BOUNDS

    def declared_for(self, object_name: str, metadata: Mapping[str, Any]) -> Mapping[str, FieldType]:
        """Return the declared types of an event's table, by column."""
        if self.declared:
            for name in (*names_of_table(object_name, metadata), self._full_name(metadata), ALL_TABLES):
                if name in self.declared:
                    return self.declared[name]
        return NO_DECLARATIONS

    def is_document(self, read_method: str, metadata: Mapping[str, Any]) -> bool:
        """Return whether an event comes from MongoDB, whose identifiers may have several types."""
        try:
            return source_kind(read_method, metadata, self.source) is SourceKind.MONGODB
        except RecordUnreadable:
            return False  # the interpreter of the event reports it

    def faulty_event(self, reason: str, text: str, position: int, event: Mapping[str, Any]) -> FaultyEvent:
        """Return an event that cannot be used, with the facts that its members state."""
        metadata, uuid, object_name = event.get("source_metadata"), event.get("uuid"), event.get("object")
        facts = metadata if isinstance(metadata, dict) else {}
        object_text = object_name if isinstance(object_name, str) else ""
        table = self._table(event.get("read_method"), facts) or names_of_table(object_text, facts)[0]
        return FaultyEvent(
            reason,
            text,
            position,
            table=table or None,
            event_id=event_identity(uuid, object_text, facts) if isinstance(uuid, str) and uuid else None,
            metadata=compact(metadata) if facts else None,
        )

    def _table(self, read_method: Any, metadata: Mapping[str, Any]) -> str | None:
        """Return the name of an event's table in the lake; None if the event does not name it."""
        try:
            kind = source_kind(read_method or "", metadata, self.source)
            return table_name(kind, metadata, self.table_name)
        except (RecordUnreadable, *MALFORMED):
            return None

    def _full_name(self, metadata: Mapping[str, Any]) -> str:
        """Return the name of an event's table by the setting `table_name`; empty without the setting."""
        return name_by_template(self.table_name, *name_parts(metadata)) or ""


class EventFaulty(ValueError):
    """An event does not have the shape that Datastream documents."""


def metadata_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the source's metadata of an event; empty if it has none."""
    metadata = event.get("source_metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise EventFaulty("`source_metadata` is not an object")
    return metadata


def payload_of(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the row of an event; None if it has none."""
    payload = event.get("payload")
    if payload is not None and not isinstance(payload, dict):
        raise EventFaulty("`payload` is not an object")
    return payload


def sort_keys_of(values: Sequence[Any]) -> Sequence[Sequence[str | int]]:
    """Return the sort keys of events, which are strings and integers; NULL becomes an empty string."""
    if set(map(type, values)) == {list} and set(map(type, chain.from_iterable(values))) <= _TEXTS_AND_NUMBERS:
        return values
    return list(map(_sort_keys, values))


def _sort_keys(value: Any) -> Sequence[str | int]:
    if value is None:
        return ()
    types = set(map(type, value)) if isinstance(value, list) else _NO_KEYS
    if not types <= _KEY_TYPES:
        raise EventFaulty("`sort_keys` is not an array of texts and integers")
    return ["" if key is None else key for key in value]


def micros_of(values: Sequence[Any], name: str) -> Sequence[int | None]:
    """Return a time of each event from text or milliseconds; without a zone it is UTC."""
    if len(values) > _FEW and set(map(type, values)) == {str}:
        micros = plain_micros(values)
        if micros is not None:
            return micros
    return [_micros(value, name) for value in values]


def _micros(value: Any, name: str) -> int | None:
    try:
        if isinstance(value, str):
            return _moment_micros(value)
    except ValueError as error:
        raise EventFaulty(f"`{name}`: {error}") from error
    if value is not None and (type(value) is not int or value.bit_length() > _MAX_BITS):
        raise EventFaulty(f"`{name}` is not a moment")
    return None if value is None else value * MICROS_PER_MILLI


def text_of(event: Mapping[str, Any], name: str) -> str:
    """Return a text of an event; empty if it has none."""
    value = event.get(name)
    if value is not None and not isinstance(value, str):
        raise EventFaulty(f"`{name}` is not text")
    return value or ""


def faulty_file(reason: str, **facts: int | str) -> FaultyEvent:
    """Return the faulty event for a file, or for the rest of one, that cannot be read."""
    return FaultyEvent(reason, compact(facts))
