"""The key of an event's row, and the identity of the event."""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.datastream.events.column_names import EVENT_ID, ROW_HASH
from cdc_platform.sources.datastream.events.event_runs import EventRun
from cdc_platform.sources.datastream.events.layouts import Form, NamePair, name_finder
from cdc_platform.sources.datastream.settings.kinds import DOCUMENT_ID, SourceKind
from cdc_platform.sources.datastream.settings.policies import KeylessPolicy
from cdc_platform.sources.datastream.values.json_text import compact, parsed
from cdc_platform.sources.json_codec import rows_of, write, write_objects

_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_dump_sorted = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def keys_of_rows(run: EventRun, form: Form, event_ids: Sequence[str]) -> Sequence[str]:
    """Return the keys of the rows of events.

    Raises:
        RecordUnreadable: a payload lacks the key, or the table has none and its policy cannot provide one.
    """
    layout = form.layout
    if layout.keyless is not None:
        return _keys_of_keyless(run, form, event_ids)
    names, columns = [name for name, _ in layout.keys], [run.column(source) for _, source in layout.keys]
    if form.kind is SourceKind.MONGODB and DOCUMENT_ID in run.values and not layout.missing_keys:
        columns = [
            list(map(_document_id, values)) if source == DOCUMENT_ID else values
            for (_, source), values in zip(layout.keys, columns, strict=True)
        ]
    absent_keys = [name for name, _ in layout.missing_keys]
    absent_keys += [name for name, values in zip(names, columns, strict=True) if None in values]
    if absent_keys:
        raise RecordUnreadable(
            f"The event has no value for a column of the key of `{layout.table}`: {', '.join(absent_keys)}"
        )
    if not any(float in map(type, values) for values in columns):
        return write_objects(names, columns, len(run))
    rows = rows_of(names, columns, len(run))
    return [_dump(row) if float in map(type, row.values()) else write(row) for row in rows]


def _keys_of_keyless(run: EventRun, form: Form, event_ids: Sequence[str]) -> Sequence[str]:
    layout, mod_type, policy = form.layout, form.mod_type, form.layout.keyless
    is_append = policy is KeylessPolicy.APPEND
    if policy is KeylessPolicy.REFUSE:
        problem = "and `keyless` refuses its events"
    elif is_append and mod_type is ModType.DELETE:
        problem = "so the row that the event deletes is unknown while `keyless` is append"
    elif not is_append and mod_type is ModType.UPDATE and not _are_halves(run, form.kind):
        problem = "and the event does not state the row as it was before the update"
    elif is_append:
        return [_dump({EVENT_ID: event_id}) for event_id in event_ids]
    else:
        sources = [source for _, source in layout.values]
        rows = zip(*map(run.column, sources), strict=True) if sources else [()] * len(run)
        return [_dump({ROW_HASH: _row_hash(zip(sources, row, strict=True))}) for row in rows]
    raise RecordUnreadable(f"`{layout.table}` has no key, {problem}; declare one in `keys`")


def _are_halves(run: EventRun, kind: SourceKind) -> bool:
    """Return whether other events remove the rows that the events replace.

    Oracle's plain updates have the type UPDATE; MySQL's have the type of a half but come alone.
    """
    return kind is SourceKind.ORACLE and run.member("change_type")[0] == "UPDATE-INSERT"


def _row_hash(row: Iterable[tuple[str, Any]]) -> str:
    """Return a digest of the texts of a row's values; without NULLs, which a new column has in old rows."""
    texts = {
        source: value if isinstance(value, str) else compact(value)
        for source, value in row
        if value is not None
    }
    return sha256(_dump_sorted(texts).encode("utf-8", "surrogatepass")).hexdigest()


def keys_of_metadata(run: EventRun, form: Form) -> Sequence[str | None]:
    """Return the keys in the metadata of events; None for a key that is in the payload or missing.

    The values come from the metadata, without types, under their names in the lake.
    """
    layout, sent_keys = form.layout, run.member("primary_keys")
    first = next((sent_key for sent_key in sent_keys if isinstance(sent_key, Mapping)), None)
    if first is None:
        return [None] * len(run)
    # The key's columns are those of the layout, so all events have the same.
    find_key = name_finder(first)
    pairs = [
        (name, find_key(source) or source) for name, source in sorted((*layout.keys, *layout.missing_keys))
    ]
    rows = rows_of(
        [name for name, _ in layout.keys], [run.column(source) for _, source in layout.keys], len(run)
    )
    in_payload = [not (layout.missing_keys or None in row.values()) for row in rows]
    return [
        _key_of_metadata(sent_key, pairs, form) if not has_key and isinstance(sent_key, Mapping) else None
        for sent_key, has_key in zip(sent_keys, in_payload, strict=True)
    ]


def _key_of_metadata(sent_key: Mapping[str, Any], pairs: Sequence[NamePair], form: Form) -> str | None:
    values = {name: sent_key.get(source) for name, source in pairs}
    if None in values.values():
        return None
    if form.kind is SourceKind.MONGODB and DOCUMENT_ID in values:
        values[DOCUMENT_ID] = _document_id(values[DOCUMENT_ID])
    return _dump(values)


def _document_id(value: Any) -> str:
    """Return a document's identifier as compact JSON: 1, "1" and {"$oid": "1"} are different documents."""
    try:
        return compact(parsed(str(value)) if isinstance(value, str) else value)
    except (ValueError, RecursionError):
        return _dump(value)


def digest_of(run: EventRun, place: int) -> str:
    """Return an identity for an event without one: equal events share it, in any file."""
    parts = [
        *(run.object_name, run.read_method, run.source_micros[place]),
        *(run.metadata_of(place), run.values_of(place)),
    ]
    return sha256(_dump_sorted(parts).encode("utf-8", "surrogatepass")).hexdigest()
