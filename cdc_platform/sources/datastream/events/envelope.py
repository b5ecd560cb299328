"""One event of Datastream, whichever format it came in and before its source is known."""

import json
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from cdc_platform.model.schema.table_schema import ColumnType


class Envelope(Struct, frozen=True):
    """One event, decoded: the same event in Avro and in JSON gives the same envelope.

    Args:
        uuid: Datastream's identity of the event; duplicates share it. Empty where the event has none.
        read_timestamp_micros: when Datastream read it; None where the event does not say.
        source_timestamp_micros: when the change was made at the source, as far as the event tells.
        object_name: `<schema>_<table>` or the like; ambiguous, `source_metadata` is not.
        read_method: how Datastream read it, such as `mysql-cdc-binlog`.
        stream_name: the stream's resource name.
        schema_key: identity of the schema; empty where the event has none.
        sort_keys: texts and integers as they came; empty where the event has none (before mid-2021).
        source_metadata: as it came, of JSON's types only.
        columns: name and type of each column that the payload's schema has, in its order.
        values: value of each column as `json.dumps` writes it into `SourceEvent`'s texts; None is NULL.
        position: which event of its file it is, counted from 0.
        has_payload: False for an event that came without any row.
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
    """Return an envelope as a JSON object that `from_text` reads."""
    fields = {name: getattr(envelope, name) for name in _FIELDS}
    fields["columns"] = [[name, column_type.to_fields()] for name, column_type in envelope.columns]
    fields["source_metadata"] = dict(envelope.source_metadata)
    fields["values"] = dict(envelope.values)
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def from_text(text: str) -> Envelope:
    """Return the envelope of a text that `to_text` made.

    Raises:
        ValueError: it is no such text.
    """
    fields: Any = json.loads(text)
    if not isinstance(fields, Mapping) or set(_FIELDS) - set(fields):
        raise ValueError(f"Not the text of an envelope: {text[:200]}")
    columns = tuple((str(name), ColumnType.from_json(type_json)) for name, type_json in fields["columns"])
    members = {name: fields[name] for name in _FIELDS}
    return Envelope(**{**members, "columns": columns, "sort_keys": tuple(fields["sort_keys"])})
