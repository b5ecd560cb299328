"""Bound parameters of a request, as values for the simulator."""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, TypeAlias

from cdc_platform.simulator.wire.problems import Refusal, parameter_invalid

Parameters: TypeAlias = Mapping[str, Any]
"""Values of bound parameters by name: text, number, boolean, None or list."""


def find_parameter(parameters: Mapping[str, Any], name: str) -> str:
    """Return the name under which a parameter is bound, ignoring case.

    Raises:
        Refusal: it is not bound.
    """
    matching_key = next((key for key in parameters if key.lower() == name.lower()), None)
    if matching_key is None:
        raise Refusal("INVALID_ARGUMENT", f"No parameter found for binding: {name}")
    return matching_key


def parameter_types(request: Any) -> dict[str, str]:
    """Return the type codes of the parameters of a request that declare one."""
    from google.cloud.spanner_v1.types import TypeCode

    names = {code.value: code.name for code in TypeCode if code is not TypeCode.TYPE_CODE_UNSPECIFIED}
    return {
        name: names.get(type_proto.code, str(type_proto.code))
        for name, type_proto in request.param_types.items()
        if type_proto.code
    }


def parameter_values(request: Any, types: dict[str, str]) -> dict[str, Any]:
    """Return the bound values of a request in a form that SQLite compares with cells of the same type.

    Raises:
        Refusal: a value does not have its type.
    """
    return {
        name: _parameter(name, _python(value), _element_type(request, name) or types.get(name, ""))
        for name, value in request.params.fields.items()
    }


def _element_type(request: Any, name: str) -> str:
    """Return the type code of an array's elements; empty for other parameters."""
    from google.cloud.spanner_v1.types import TypeCode

    if name not in request.param_types or request.param_types[name].code != TypeCode.ARRAY:
        return ""
    code = request.param_types[name].array_element_type.code
    return next((type_code.name for type_code in TypeCode if type_code.value == code), "")


def _parameter(name: str, raw: Any, type_name: str) -> Any:
    if isinstance(raw, list):
        return [_parameter(name, item, type_name) for item in raw]
    if raw is None or type_name not in ("INT64", "BYTES"):
        return raw
    try:
        # Both are text on the wire; a JSON number would have lost digits.
        return int(raw) if type_name == "INT64" else b64decode(raw, validate=True)
    except (ValueError, TypeError) as error:
        raise parameter_invalid(name, type_name) from error


def _python(value: Any) -> Any:
    """Return a protobuf value as a Python value."""
    kind = value.WhichOneof("kind")
    if kind in (None, "null_value"):
        return None
    if kind == "list_value":
        return [_python(item) for item in value.list_value.values]
    return getattr(value, kind)
