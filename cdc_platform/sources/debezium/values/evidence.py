"""Shapes of a column's unavailable values, by the name of its type or by its schema block."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cdc_platform.sources.debezium.settings.connector import (
    BinaryMode,
    ConnectorModes,
    DecimalMode,
    HstoreMode,
    TimeMode,
)
from cdc_platform.sources.debezium.values.block_encodings import block_encoding
from cdc_platform.sources.debezium.values.encodings import Encoding, EncodingKind
from cdc_platform.sources.debezium.values.postgres_types import TEXT
from cdc_platform.sources.debezium.values.unavailable import Shape, Version, is_known, shapes_of

_TIMES: Final[Mapping[str, TimeMode]] = {
    # logical name: a mode that has it
    "io.debezium.time.Date": TimeMode.ADAPTIVE,
    "io.debezium.time.IsoDate": TimeMode.ISOSTRING,
    "org.apache.kafka.connect.data.Date": TimeMode.CONNECT,
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """Possible shapes of a column's unavailable values.

    Args:
        source: the type that determines them, by its name or from a schema block.
        shapes: the shapes; empty for a type whose values are always sent.
    """

    source: str
    shapes: tuple[Shape, ...]


def evidence_of(
    field: Mapping[str, Any] | None, declared: Encoding | None, version: Version, modes: ConnectorModes
) -> Evidence:
    """Return the evidence about a column.

    Args:
        field: field of the schema block.
        declared: encoding of the declared or propagated type.
        version: version of the connector.
        modes: modes of the connector in the settings.
    """
    if field is None:
        source = declared.source if declared is not None else ""
        return Evidence(source, shapes_of(source, version, modes))
    encoding, block_modes = block_encoding(field), _block_modes(field, modes)
    if declared is not None and _is_of(encoding, declared):
        return Evidence(declared.source, shapes_of(declared.source, version, block_modes))
    shapes = shapes_of(encoding.source, version, block_modes)
    may_be_null = _may_be_another(encoding.source, declared, version, modes) and Shape.NULL not in shapes
    return Evidence(encoding.source, (*shapes, Shape.NULL) if may_be_null else shapes)


def _is_of(encoding: Encoding, declared: Encoding) -> bool:
    """Return whether the declared type is the column's own, not a text that holds values of another type."""
    return is_known(declared.source) and (
        declared.kind is not EncodingKind.TEXT or encoding.kind is EncodingKind.TEXT
    )


def _may_be_another(name: str, declared: Encoding | None, version: Version, modes: ConnectorModes) -> bool:
    """Return whether a type without a marker may look like the type of the schema block.

    The connector chooses the marker of arrays and of hstore by the name of the type, and a domain over such
    a type has another name. `oid[]` and `hstore[]` look like `bigint[]` and `json[]`.
    """
    if name == TEXT:  # bytes that the connector encodes as text
        return Shape.NULL in shapes_of("bytea", version, modes)
    if name == "double precision":
        return modes.decimals is DecimalMode.DOUBLE
    return name.endswith("[]") or (name in {"json", "hstore"} and declared is not None)


def _block_modes(field: Mapping[str, Any], modes: ConnectorModes) -> ConnectorModes:
    """Return the modes that the schema block implies; the settings may lack them, or state others."""
    item = field["items"] if field["type"] == "array" else field
    kind, name = item["type"], item.get("name") or ""
    times = _TIMES.get(name, TimeMode.ISOSTRING if name.endswith("Date") else modes.times)
    if kind == "string":
        binary = BinaryMode.BASE64 if modes.binary is BinaryMode.BYTES else modes.binary
        return replace(modes, times=times, binary=binary, decimals=DecimalMode.STRING, hstore=HstoreMode.JSON)
    decimals = DecimalMode.DOUBLE if kind == "double" else DecimalMode.PRECISE
    return replace(modes, times=times, binary=BinaryMode.BYTES, decimals=decimals, hstore=HstoreMode.MAP)
