"""One event of Datastream, whichever format it came in and before its source is known."""

from collections.abc import Mapping
from typing import Any

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
