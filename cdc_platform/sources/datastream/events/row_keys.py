"""The key of an event's row, and the identity of the event."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.datastream.events.column_names import EVENT_ID, ROW_HASH
from cdc_platform.sources.datastream.events.envelope import Envelope
from cdc_platform.sources.datastream.events.layouts import DOCUMENT_ID, Layout, NamePair, name_finder
from cdc_platform.sources.datastream.events.ordering_keys import OrderingFacts
from cdc_platform.sources.datastream.settings.kinds import SourceKind
from cdc_platform.sources.datastream.settings.policies import KeylessPolicy
from cdc_platform.sources.datastream.values.json_text import compact, parsed
from cdc_platform.sources.json_codec import write

_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_dump_sorted = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def key_of_row(envelope: Envelope, facts: OrderingFacts, layout: Layout, mod_type: ModType) -> str:
    """Return the key of an event's row.

    Raises:
        RecordUnreadable: the payload lacks the key, or the table has none and its policy cannot provide one.
    """
    values = envelope.values
    if layout.keyless is not None:
        return _key_of_keyless(envelope, facts, layout, mod_type)
    if DOCUMENT_ID in values and facts.kind is SourceKind.MONGODB and not layout.missing_keys:
        values = {**values, DOCUMENT_ID: _document_id(values[DOCUMENT_ID])}
    keys = {name: values.get(source) for name, source in layout.keys}
    types = set(map(type, keys.values()))
    if layout.missing_keys or type(None) in types:
        missing = (name for name, _ in layout.missing_keys)
        columns = [*missing, *(name for name, value in keys.items() if value is None)]
        raise RecordUnreadable(
            f"The event has no value for a column of the key of `{layout.table}`: {', '.join(columns)}"
        )
    return _dump(keys) if float in types else write(keys)


def _key_of_keyless(envelope: Envelope, facts: OrderingFacts, layout: Layout, mod_type: ModType) -> str:
    policy = layout.keyless
    is_append = policy is KeylessPolicy.APPEND
    if policy is KeylessPolicy.REFUSE:
        problem = "and `keyless` refuses its events"
    elif is_append and mod_type is ModType.DELETE:
        problem = "so the row that the event deletes is unknown while `keyless` is append"
    elif not is_append and mod_type is ModType.UPDATE and not _is_half(envelope, facts.kind):
        problem = "and the event does not state the row as it was before the update"
    elif is_append:
        return _dump({EVENT_ID: facts.event_id})
    else:
        return _dump({ROW_HASH: _row_hash(layout.values, envelope.values)})
    raise RecordUnreadable(f"`{layout.table}` has no key, {problem}; declare one in `keys`")


def _is_half(envelope: Envelope, kind: SourceKind) -> bool:
    """Return whether another event removes the row that the event replaces.

    Oracle's plain updates have the type UPDATE; MySQL's have the type of a half but come alone.
    """
    return kind is SourceKind.ORACLE and envelope.source_metadata.get("change_type") == "UPDATE-INSERT"


def _row_hash(pairs: tuple[NamePair, ...], values: Mapping[str, Any]) -> str:
    """Return a digest of the texts of a row's values; without NULLs, which a new column has in old rows."""
    texts = {
        source: value if isinstance(value, str) else compact(value)
        for source, value in ((source, values.get(source)) for _, source in pairs)
        if value is not None
    }
    return sha256(_dump_sorted(texts).encode("utf-8", "surrogatepass")).hexdigest()


def key_of_metadata(envelope: Envelope, facts: OrderingFacts, layout: Layout) -> str | None:
    """Return the key in an event's metadata; None if the payload has the key, or the metadata lacks it.

    The values come from the metadata, without types, under their names in the lake.
    """
    key_names = envelope.source_metadata.get("primary_keys")
    has_key = all(envelope.values.get(source) is not None for _, source in layout.keys)
    if not isinstance(key_names, Mapping) or (has_key and not layout.missing_keys):
        return None
    pairs = sorted((*layout.keys, *layout.missing_keys))
    find_key = name_finder(key_names)
    values = {name: key_names.get(find_key(source) or source) for name, source in pairs}
    if None in values.values():
        return None
    if facts.kind is SourceKind.MONGODB and DOCUMENT_ID in values:
        values[DOCUMENT_ID] = _document_id(values[DOCUMENT_ID])
    return _dump(values)


def _document_id(value: Any) -> str:
    """Return a document's identifier as compact JSON: 1, "1" and {"$oid": "1"} are different documents."""
    try:
        return compact(parsed(str(value)) if isinstance(value, str) else value)
    except (ValueError, RecursionError):
        return _dump(value)


def digest_of(envelope: Envelope) -> str:
    """Return an identity for an event without one: equal events share it, in any file."""
    parts = [
        envelope.object_name,
        envelope.read_method,
        envelope.source_timestamp_micros,
        dict(envelope.source_metadata),
        dict(envelope.values),
    ]
    return sha256(_dump_sorted(parts).encode("utf-8", "surrogatepass")).hexdigest()
