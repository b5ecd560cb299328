"""Events of a file, and the runs of those that are decoded together."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from cdc_platform.sources.datastream.events.event_runs import EventRun
from cdc_platform.sources.datastream.files.decoding import EventFaulty, sort_keys_of
from cdc_platform.sources.datastream.settings.kinds import DOCUMENT_ID
from cdc_platform.sources.datastream.values.rows import RowReader

_MAX_LEVELS: Final = 100
"""Maximum number of levels of nesting in metadata, which are serialised again as a whole."""
_CONTAINERS: Final = frozenset({dict, list})


class FileEvent(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An event of a file: texts and objects are validated, timestamps and sort keys are not."""

    uuid: str | None = None
    read_timestamp: Any = None
    source_timestamp: Any = None
    object_name: str | None = msgspec.field(default=None, name="object")
    read_method: str | None = None
    stream_name: str | None = None
    schema_key: str | None = None
    sort_keys: Any = None
    source_metadata: dict[str, Any] | None = None
    payload: dict[str, Any] | None = None


MicrosOf = Callable[[Sequence[Any], str], Sequence[int | None]]
"""Converts the values of a timestamp with a name to microseconds."""


def form_of(event: FileEvent) -> Hashable:
    """Return the form of an event: events of one form are decoded together.

    A column that some rows lack is null in them, except for the key of a document, which may be null.
    """
    metadata, row = event.source_metadata or {}, event.payload
    change, mark = metadata.get("change_type"), metadata.get("is_deleted")
    return (
        event.object_name,
        event.schema_key,
        event.read_method,
        tuple(metadata),
        None if row is None else DOCUMENT_ID in row,
        # Only to have fewer runs: the interpreter compares all metadata that matters.
        change if type(change) is str else None,
        mark if type(mark) is bool else None,
    )


def event_run(
    events: Sequence[FileEvent],
    positions: Sequence[int],
    reader: RowReader,
    micros_of: MicrosOf,
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> EventRun:
    """Return the run of events of one form.

    Args:
        events: the events.
        positions: position of each in the file.
        reader: reads the values of their payloads.
        micros_of: converts their timestamps.
        columns: the values of their payloads by column; None if all have the same columns in the same order.

    Raises:
        MALFORMED: one of them, or more, cannot be decoded.
    """
    uuids, read, source, _, _, streams, _, sort_keys, metadata, rows = zip(*map(astuple, events), strict=True)
    first = events[0]
    return EventRun(
        first.object_name or "",
        first.read_method or "",
        first.schema_key or "",
        reader.columns,
        first.payload is not None,
        _texts(uuids),
        micros_of(read, "read_timestamp"),
        micros_of(source, "source_timestamp"),
        _texts(streams),
        sort_keys_of(sort_keys),
        _by_name(metadata),
        reader.read(_by_name(rows) if columns is None else columns),
        rows,
        positions,
    )


def _texts(texts: Sequence[Any]) -> Sequence[str]:
    return texts if all(texts) else [text or "" for text in texts]


def _by_name(objects: Sequence[dict[str, Any] | None]) -> Mapping[str, Sequence[Any]]:
    """Return the values of objects with the same members in the same order, by name."""
    first = objects[0]
    if not first:
        return {}
    return dict(zip(first, zip(*map(dict.values, objects), strict=True), strict=True))  # type: ignore[arg-type]


def check_depth(metadata: Collection[Any]) -> None:
    """Reject values of metadata that are nested too deeply.

    Raises:
        EventFaulty: a value has too many levels.
    """
    parts = metadata
    for _ in range(_MAX_LEVELS):
        types = set(map(type, parts))
        if types.isdisjoint(_CONTAINERS):
            return
        if types != {list}:
            containers = (part for part in parts if type(part) in _CONTAINERS)
            parts = [part.values() if type(part) is dict else part for part in containers]
        parts = list(chain.from_iterable(parts))
    raise EventFaulty(f"`source_metadata` is nested deeper than {_MAX_LEVELS} levels")
