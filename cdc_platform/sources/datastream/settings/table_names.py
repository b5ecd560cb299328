"""The table of an event."""

import re
from collections.abc import Mapping
from typing import Any, Final

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.names import long_table_reason
from cdc_platform.sources.datastream.settings.declarations import database_name, part_text
from cdc_platform.sources.datastream.settings.kinds import SourceKind

_TEMPLATES: Final[Mapping[SourceKind, str]] = {
    SourceKind.MYSQL: "{database}.{table}",
    SourceKind.ORACLE: "{schema}.{table}",
    SourceKind.POSTGRESQL: "{schema}.{table}",
    SourceKind.SQLSERVER: "{schema}.{table}",
    SourceKind.SALESFORCE: "{table}",
    SourceKind.MONGODB: "{database}.{table}",
}
_DATABASE_FIELDS: Final[Mapping[SourceKind, str]] = {SourceKind.SALESFORCE: "domain"}
_TABLE_FIELDS: Final[Mapping[SourceKind, str]] = {
    SourceKind.SALESFORCE: "object_name",
    SourceKind.MONGODB: "collection",
}
_MAX_PARTS: Final = 3
_AMBIGUOUS: Final = re.compile(r'[."]')


def table_name(kind: SourceKind, metadata: Mapping[str, Any], template: str | None = None) -> str:
    """Return the name of an event's table.

    It is built from `source_metadata`, since `object` joins its parts with a character that they may contain.
    A part with a dot or a quote is quoted, so that two tables never get the same name.

    Args:
        kind: source of the event.
        metadata: the event's `source_metadata`.
        template: built from {database}, {schema} and {table}; None uses the source's name.

    Raises:
        RecordUnreadable: the metadata lacks a part of the name, or it is too long.
    """
    text = template or _TEMPLATES[kind]
    fields = {
        "database": _DATABASE_FIELDS.get(kind, "database"),
        "schema": "schema",
        "table": _TABLE_FIELDS.get(kind, "table"),
    }
    parts = {
        part: _part(field, metadata.get(field)) for part, field in fields.items() if f"{{{part}}}" in text
    }
    name = text.format(**parts)
    if (reason := long_table_reason(name)) is not None:
        raise RecordUnreadable(reason)
    return name


def unnamed_database(kind: SourceKind, metadata: Mapping[str, Any], template: str | None) -> str:
    """Return the database of an event's table; empty if it is unknown, or if the user chose the table's name.

    Without a template the tables of two databases would be one; a template without {database} wants that.
    """
    is_named = template is not None or "{database}" in _TEMPLATES[kind]
    return "" if is_named else database_name(metadata)


def name_by_template(template: str | None, *parts: str) -> str | None:
    """Return the name that a template gives to a table with these parts; None if it needs other parts.

    Args:
        template: as in `table_name`.
        parts: the table, and before it its database, its schema, or both in this order.
    """
    if template is None or not 0 < len(parts) <= _MAX_PARTS:
        return None
    parts = tuple(map(_quoted, parts))
    fields = {"table": parts[-1]}
    if len(parts) > 1:
        fields |= {"database": parts[0], "schema": parts[-2]}
    try:
        return template.format(**fields)
    except KeyError:
        return None


def _part(field: str, value: object) -> str:
    text = part_text(value)
    if not text:
        raise RecordUnreadable(
            f"`source_metadata` does not state the event's table: `{field}` says {value!r}"
        )
    return _quoted(text)


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"' if _AMBIGUOUS.search(part) else part
