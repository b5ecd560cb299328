"""Full names of the types in Avro schemas: a type inherits the namespace of its enclosing type."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

Schema = Any
"""An Avro schema as `json.loads` returns it: a text, a list or an object."""
DEFINITIONS: Final = ("record", "error", "enum", "fixed")
PARTS: Final = ("type", "items", "values", "fields")
"""Attributes of a schema that contain other schemas."""
PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_PRIVATE: Final = "__"
"""Prefix of the notes that Avro's library adds to a parsed schema, and trusts."""


def qualify(schema: Schema, namespace: str = "") -> Schema:
    """Return a schema with the full name of each type, so that equal names mean one type.

    ``namespace`` is that of the enclosing type.

    Raises:
        TypeError: a name is not text.
    """
    if isinstance(schema, list):
        return [qualify(branch, namespace) for branch in schema]
    if isinstance(schema, str):
        return schema if "." in schema or schema in PRIMITIVES else _join(namespace, schema)
    if not isinstance(schema, Mapping):
        return schema
    parts = {name: part for name, part in schema.items() if not name.startswith(_PRIVATE)}
    base = parts.get("type")
    if base in DEFINITIONS and "name" in parts:
        inner, parts["name"] = _full_name(parts, namespace)
        parts["namespace"] = inner
        namespace = inner if base in ("record", "error") else namespace
    elif isinstance(base, list | Mapping):
        parts["type"] = qualify(base, namespace)
    for part in ("items", "values"):
        if part in parts:
            parts[part] = qualify(parts[part], namespace)
    if isinstance(parts.get("fields"), list):
        parts["fields"] = [_qualified_field(field, namespace) for field in parts["fields"]]
    return parts


def _qualified_field(field: Any, namespace: str) -> Any:
    if not isinstance(field, Mapping) or "type" not in field:
        return field
    return {**field, "type": qualify(field["type"], namespace)}


def _full_name(definition: Mapping[str, Any], outer: str) -> tuple[str, str]:
    """Return the namespace of a definition, and its name with it."""
    name, namespace = definition["name"], definition.get("namespace", outer)
    if not isinstance(name, str) or not isinstance(namespace, str):
        raise TypeError(f"a name of a type is not text: {str(name)[:100]}")
    if "." in name:
        return name.rpartition(".")[0], name
    return namespace, _join(namespace, name)


def _join(namespace: str, name: str) -> str:
    return f"{namespace}.{name}" if namespace else name


def types_by_name(schema: Schema) -> dict[str, Schema]:
    """Return all types that a qualified schema defines, by name; a type is defined once and then only named.

    A schema file may leave the namespace out, so that a short name means the first type that has it.
    """
    names: dict[str, Schema] = {}
    definitions = list(_definitions(schema))
    for definition in definitions:
        names.setdefault(definition["name"].rpartition(".")[2], definition)
    return names | {definition["name"]: definition for definition in definitions}


def resolve(schema: Schema, names: Mapping[str, Schema]) -> Schema:
    """Return the definition of a name; any other value stays unchanged."""
    if not isinstance(schema, str):
        return schema
    return names.get(schema) or names.get(schema.rpartition(".")[2], schema)


def _definitions(schema: Schema) -> Iterator[Mapping[str, Any]]:
    if isinstance(schema, list):
        for branch in schema:
            yield from _definitions(branch)
    elif isinstance(schema, Mapping):
        if "name" in schema and schema.get("type") in DEFINITIONS:
            yield schema
        for part in PARTS:
            yield from _definitions(schema.get(part))
