"""One event of Datastream in a form independent of its file format and its source."""

import json
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from cdc_platform.model.schema.table_schema import ColumnType


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


_FIELDS: Final = Envelope.__struct_fields__


def to_text(envelope: Envelope) -> str:
    """Return an envelope as a JSON object for `from_text`."""
    fields = {name: getattr(envelope, name) for name in _FIELDS}
    fields["columns"] = [[name, column_type.to_fields()] for name, column_type in envelope.columns]
    fields["source_metadata"] = dict(envelope.source_metadata)
    fields["values"] = dict(envelope.values)
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def from_text(text: str) -> Envelope:
    """Parse an envelope from a text of `to_text`.

    Raises:
        ValueError: the text has another form.
    """
    fields: Any = json.loads(text)
    if not isinstance(fields, Mapping) or set(_FIELDS) - set(fields):
        raise ValueError(f"Not the text of an envelope: {text[:200]}")
    columns = tuple((str(name), ColumnType.from_json(type_json)) for name, type_json in fields["columns"])
    members = {name: fields[name] for name in _FIELDS}
    return Envelope(**{**members, "columns": columns, "sort_keys": tuple(fields["sort_keys"])})
