"""Envelopes as texts: what quarantine keeps of an event, so that it can be replayed."""

import json
from collections.abc import Mapping
from typing import Any, Final

from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.sources.datastream.events.envelope import Envelope

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
