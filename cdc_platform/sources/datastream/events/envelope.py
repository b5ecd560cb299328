"""Text of one event of Datastream, independent of its file format and its source."""

import json
from collections.abc import Mapping
from typing import Any, Final

from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.sources.datastream.events.event_runs import EventRun

_OF_ALL: Final = ("object_name", "read_method", "schema_key", "has_payload")
"""Members that all events of a run share."""
_OF_EACH: Final = {
    "uuid": "uuids",
    "read_timestamp_micros": "read_micros",
    "source_timestamp_micros": "source_micros",
    "stream_name": "stream_names",
    "sort_keys": "sort_keys",
    "position": "positions",
}
"""Members of each event, and the fields that runs have them in."""
_NESTED: Final = ("columns", "source_metadata", "values")


def to_text(run: EventRun) -> str:
    """Return the only event of a run as a JSON object for `from_text`."""
    fields = {name: getattr(run, field)[0] for name, field in _OF_EACH.items()}
    fields |= {name: getattr(run, name) for name in _OF_ALL}
    fields["columns"] = [[name, column_type.to_fields()] for name, column_type in run.columns]
    fields |= {"source_metadata": run.metadata_of(0), "values": run.values_of(0)}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def from_text(text: str) -> EventRun:
    """Return the event of a text of `to_text` as a run.

    Raises:
        ValueError: the text has another form.
    """
    fields: Any = json.loads(text)
    if not isinstance(fields, Mapping) or {*_OF_ALL, *_OF_EACH, *_NESTED} - set(fields):
        raise ValueError(f"Not the text of an envelope: {text[:200]}")
    common_fields: dict[str, Any] = {name: fields[name] for name in _OF_ALL}
    single: dict[str, Any] = {field: [fields[name]] for name, field in _OF_EACH.items()}
    return EventRun(
        columns=tuple((str(name), ColumnType.from_json(type_json)) for name, type_json in fields["columns"]),
        metadata={name: [value] for name, value in fields["source_metadata"].items()},
        values={name: [value] for name, value in fields["values"].items()},
        names=[fields["values"]],
        **common_fields,
        **single,
    )
