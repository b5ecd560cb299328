"""Avro schemas of events: the columns of their payload, and the schema for reading unconverted values."""

import json
from collections.abc import Mapping
from typing import Any, Final

from cdc_platform.sources.datastream.files.avro_bounds import ARRAY_RECORD, check_extent
from cdc_platform.sources.datastream.files.avro_names import PARTS, Schema, qualify, resolve, types_by_name
from cdc_platform.sources.datastream.settings.bounds import DEFAULT_BOUNDS, Bounds
from cdc_platform.sources.datastream.values.types import Fields, FieldType, Kind

PAYLOAD: Final = "payload"

_PRIMITIVES: Final = {
    "boolean": Kind.BOOLEAN,
    "int": Kind.INTEGER,
    "long": Kind.LONG,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "bytes": Kind.BYTES,
    "fixed": Kind.BYTES,
    "string": Kind.STRING,
    "enum": Kind.STRING,
}
_LOGICAL: Final = {
    ("int", "date"): (Kind.DATE, 1),
    ("int", "time-millis"): (Kind.TIME, 1000),
    ("long", "time-micros"): (Kind.TIME, 1),
    ("long", "time-interval-micros"): (Kind.TIME_INTERVAL, 1),
    ("long", "timestamp-micros"): (Kind.TIMESTAMP, 1),
    ("long", "timestamp-millis"): (Kind.TIMESTAMP, 1000),
    ("long", "local-timestamp-micros"): (Kind.DATETIME, 1),
    ("long", "local-timestamp-millis"): (Kind.DATETIME, 1000),
    ("string", "json"): (Kind.JSON, 1),
    ("string", "number"): (Kind.NUMBER, 1),
}
# Names of such records vary, since a schema may define a name once only; the names of their fields do not.
_RECORDS: Final = {
    frozenset({"date", "time"}): Kind.DATETIME,
    frozenset({"timestamp", "offset"}): Kind.TIMESTAMP_WITH_TIMEZONE,
    frozenset({"time", "offset"}): Kind.TIME_WITH_TIMEZONE,
    frozenset({"months", "hours", "micros"}): Kind.INTERVAL,
    frozenset({"value", "length"}): Kind.VARCHAR,
}
_TYPE_PROPERTIES: Final = ("logicalType", "precision", "scale")
_OTHER: Final = FieldType(Kind.OTHER)


def fields_of_schema(text: str, bounds: Bounds = DEFAULT_BOUNDS) -> Fields:
    """Return the columns of an Avro schema file, with the schema of an event or of its payload.

    Raises:
        ValueError: The text is not an Avro schema of a record.
    """
    try:
        schema = json.loads(text)
        check_extent(schema, bounds)
        schema = qualify(schema)
        return payload_fields(schema) or _columns(schema, types_by_name(schema))
    except (TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError(f"The file is not an Avro schema of a record ({error!r})") from error


def payload_fields(schema: Schema) -> Fields | None:
    """Return the columns of an event's payload in a qualified schema; None without a payload."""
    names = types_by_name(schema)
    for field in schema.get("fields", ()):
        if field.get("name") == PAYLOAD:
            record = resolve(_only_branch(field["type"]), names)
            return _columns(record, names) if isinstance(record, Mapping) and "fields" in record else None
    return None


def without_logical_types(schema: Schema) -> Schema:
    """Return the schema whose values come as they are stored.

    Avro's libraries turn dates beyond the year 9999 and decimals beyond their context into errors.
    """
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    plain = {name: value for name, value in schema.items() if name not in _TYPE_PROPERTIES}
    for name in PARTS:
        if name in plain:
            plain[name] = without_logical_types(plain[name])
    return plain


def bases_of(schema: Schema) -> set[str]:
    """Return the names of the possible types of a schema's values."""
    if isinstance(schema, list):
        return set().union(*map(bases_of, schema))
    return bases_of(schema["type"]) if isinstance(schema, Mapping) else {str(schema)}


def _columns(record: Mapping[str, Any], names: Mapping[str, Schema]) -> Fields:
    return tuple((field["name"], _field_type(field["type"], names, field)) for field in record["fields"])


def _field_type(schema: Schema, names: Mapping[str, Schema], field: Mapping[str, Any]) -> FieldType:
    """Return the type of a schema; the oldest files have the logical type at the field instead."""
    schema = resolve(_only_branch(schema), names)
    if isinstance(schema, list):
        return _OTHER
    own = schema if isinstance(schema, Mapping) else {"type": schema}
    properties = {name: field[name] for name in _TYPE_PROPERTIES if name in field} | dict(own)
    base = own["type"]
    if isinstance(base, Mapping | list):
        return _field_type(base, names, properties)
    if base == "record":
        return _record_type(own, names)
    if base == "array":
        return _array_of(_field_type(own["items"], names, {}))
    return _scalar_type(base, properties)


def _scalar_type(base: str, properties: Mapping[str, Any]) -> FieldType:
    logical = properties.get("logicalType")
    if logical == "decimal" and base in ("bytes", "fixed"):
        return FieldType(Kind.DECIMAL, int(properties["precision"]), int(properties.get("scale", 0)))
    kind, unit = _LOGICAL.get((base, str(logical)), (_PRIMITIVES.get(base, Kind.OTHER), 1))
    return FieldType(kind, micros_per_unit=unit)


def _record_type(record: Mapping[str, Any], names: Mapping[str, Schema]) -> FieldType:
    fields = {field["name"]: field for field in record["fields"]}
    if fields.keys() == {*ARRAY_RECORD}:
        element = fields["elementValue"]
        return _array_of(_field_type(element["type"], names, element))
    return FieldType(_RECORDS.get(frozenset(fields), Kind.OTHER))


def _array_of(element: FieldType) -> FieldType:
    """Return the array; elements that are arrays themselves make it deeper, not another type."""
    if element.kind is Kind.OTHER:
        return _OTHER
    return element if element.kind is Kind.ARRAY else FieldType(Kind.ARRAY, element=element)


def _only_branch(schema: Schema) -> Schema:
    """Return the other type of a union with null; larger unions stay unchanged."""
    if not isinstance(schema, list):
        return schema
    branches = [branch for branch in schema if branch != "null"]
    return branches[0] if len(branches) == 1 else schema
