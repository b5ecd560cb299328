"""Shapes of values that were not sent, which depend on the column's type, the connector and its settings."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from cdc_platform.errors import SettingError
from cdc_platform.sources.debezium.settings.connector import (
    BinaryMode,
    ConnectorModes,
    DecimalMode,
    HstoreMode,
    TimeMode,
)
from cdc_platform.sources.debezium.values.postgres_types import STRING_ARRAY

Version = tuple[int, ...]
NEWEST: Final[Version] = (9999,)
_NUMBERS: Final = re.compile(r"\d+")


class Shape(StrEnum):
    """JSON form of a value that was not sent."""

    TEXT = "text"
    """The placeholder."""
    BASE64 = "base64"
    """The placeholder in base64."""
    TEXT_LIST = "text_list"
    """An array of the placeholder."""
    BASE64_LIST = "base64_list"
    """An array of the placeholder in base64."""
    OCTET_LIST = "octet_list"
    """An array of the placeholder's octets, signed, which look like numbers or days."""
    UUID_LIST = "uuid_list"
    """An array of the UUID whose name is the placeholder."""
    HSTORE_TEXT = "hstore_text"
    """The text of an object whose only key and value are the placeholder."""
    HSTORE_MAP = "hstore_map"
    """The same as an object."""
    NULL = "null"
    """Null, as if the value were NULL."""


@dataclass(frozen=True, slots=True)
class ShapeRule:
    """Shapes of some types, from a version of the connector on and under some of its modes.

    A mode of None matches any mode.
    """

    types: frozenset[str]
    shapes: tuple[Shape, ...]
    since: Version
    binary: frozenset[BinaryMode] | None = None
    decimals: frozenset[DecimalMode] | None = None
    times: frozenset[TimeMode] | None = None
    hstore: frozenset[HstoreMode] | None = None

    def holds(self, source: str, version: Version, modes: ConnectorModes) -> bool:
        """Return whether the rule applies to the type."""
        return (
            source in self.types
            and version >= self.since
            and (self.binary is None or modes.binary in self.binary)
            and (self.decimals is None or modes.decimals in self.decimals)
            and (self.times is None or modes.times in self.times)
            and (self.hstore is None or modes.hstore in self.hstore)
        )


def _types(*names: str) -> frozenset[str]:
    return frozenset(names)


IN_LINE: Final = _types(
    # These are too short for out-of-row storage, so they are always sent.
    *("boolean", "smallint", "integer", "bigint", "oid", "real", "double precision", "small numeric"),
    *("date", "time", "timetz", "timestamp", "timestamptz", "interval", "uuid", "enum", "money"),
    *("point", "line", "lseg", "box", "circle", "inet", "cidr", "macaddr", "macaddr8", "pg_lsn"),
    *("short bits", "isbn", "isbn13", "ismn", "ismn13", "issn", "issn13", "upc", "ean13"),
)
RULES: Final[tuple[ShapeRule, ...]] = (
    # The first matching rule applies. Versions are those of the connector's changelog.
    ShapeRule(_types("bytea"), (Shape.BASE64,), (0, 10), binary=frozenset({BinaryMode.BYTES})),
    ShapeRule(_types("bytea"), (Shape.TEXT,), (2, 6), binary=frozenset({BinaryMode.HEX})),
    ShapeRule(_types("bytea[]"), (Shape.BASE64_LIST,), (2, 3), binary=frozenset({BinaryMode.BYTES})),
    ShapeRule(_types("bpchar[]"), (Shape.TEXT_LIST,), (3, 0, 3)),
    ShapeRule(_types("text[]", "varchar[]", "json[]", "jsonb[]"), (Shape.TEXT_LIST,), (2, 1)),
    ShapeRule(_types(STRING_ARRAY), (Shape.TEXT_LIST, Shape.NULL), (2, 1)),
    ShapeRule(_types("integer[]", "bigint[]"), (Shape.OCTET_LIST,), (2, 1)),
    ShapeRule(
        _types("date[]"),
        (Shape.OCTET_LIST,),
        (2, 3),
        times=frozenset(TimeMode) - {TimeMode.ISOSTRING, TimeMode.CONNECT},
    ),
    ShapeRule(_types("uuid[]"), (Shape.UUID_LIST,), (2, 4)),
    ShapeRule(_types("hstore"), (Shape.HSTORE_TEXT,), (2, 6), hstore=frozenset({HstoreMode.JSON})),
    ShapeRule(_types("hstore"), (Shape.HSTORE_MAP,), (2, 3), hstore=frozenset({HstoreMode.MAP})),
    ShapeRule(_types("numeric"), (Shape.TEXT,), (0, 10), decimals=frozenset({DecimalMode.STRING})),
    # A schema block is the same for json and hstore.
    ShapeRule(_types("json"), (Shape.TEXT, Shape.HSTORE_TEXT), (0, 10)),
    ShapeRule(
        _types("numeric", "bit", "varbit", "bytea", "hstore", "struct", "geometry", "geography"),
        (Shape.NULL,),
        (0,),
    ),
)
_FIRST: Final[Version] = (0, 10)
"""Older versions had no placeholder."""
_PLAIN_TEXTS: Final = _types(
    *("text", "varchar", "bpchar", "citext", "xml", "json", "jsonb", "ltree", "tsvector", "name"),
)
_TEXTS: Final = (Shape.TEXT,)
_RANGES: Final = _types("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange")
_UNKNOWN: Final = (Shape.TEXT, Shape.BASE64, Shape.NULL)
"""Shapes of domains, which depend on their base type, and of types unknown to the connector: composites."""
_NULLS: Final = (Shape.NULL,)


def version_of(text: str) -> Version:
    """Return the numbers of a version such as `3.6.3.Final`; a missing version counts as the newest."""
    numbers = tuple(int(number) for number in _NUMBERS.findall(text)[:3])
    return numbers or NEWEST


def shapes_of(source: str, version: Version, modes: ConnectorModes) -> tuple[Shape, ...]:
    """Return the shapes of a PostgreSQL type; none for a type whose values are always sent."""
    if source in IN_LINE:
        return ()
    if version < _FIRST:
        return _NULLS
    for rule in RULES:
        if rule.holds(source, version, modes):
            return rule.shapes
    if source.endswith("[]"):  # every other array is null
        return _NULLS
    return _TEXTS if source in _PLAIN_TEXTS | _RANGES else _UNKNOWN


_NAMED: Final = frozenset(IN_LINE.union(_PLAIN_TEXTS, _RANGES, *(rule.types for rule in RULES)))


def is_known(source: str) -> bool:
    """Return whether the name of a type determines its form, unlike that of a domain or a composite."""
    return source in _NAMED or source.endswith("[]")


def marker_of(shape: Shape, placeholder: bytes) -> Any:
    """Return the JSON value of a shape."""
    text, base64_text = placeholder.decode(errors="replace"), base64.b64encode(placeholder).decode()
    markers: Mapping[Shape, Any] = {
        Shape.TEXT: text,
        Shape.BASE64: base64_text,
        Shape.TEXT_LIST: [text],
        Shape.BASE64_LIST: [base64_text],
        Shape.OCTET_LIST: list(memoryview(placeholder).cast("b")),
        # Java's UUID of a name, which has no namespace.
        Shape.UUID_LIST: [
            str(UUID(bytes=hashlib.md5(placeholder, usedforsecurity=False).digest(), version=3))
        ],
        Shape.HSTORE_TEXT: json.dumps({text: text}, ensure_ascii=False, separators=(",", ":")),
        Shape.HSTORE_MAP: {text: text},
    }
    return markers[shape]


def masked_markers(setting: str, mask: str, placeholder: bytes) -> tuple[str, ...]:
    """Return the marker after masking by the connector.

    Args:
        setting: name of the setting, for the error.
        mask: the marker itself, `truncate:LENGTH`, or `hash:ALGORITHM:SALT[:LENGTH]`.
        placeholder: the marker before masking.

    Raises:
        SettingError: the mask has another form.
    """
    kind, _, rest = mask.partition(":")
    text = placeholder.decode(errors="replace")
    if kind == "truncate" and rest.isdigit():
        return (text[: int(rest)],)
    if kind != "hash":
        return (mask,)
    algorithm, _, salted = rest.partition(":")
    salt, _, length = salted.rpartition(":") if salted.rpartition(":")[2].isdigit() else (salted, "", "")
    end = int(length) if length else None
    # Version 2 hashes the text, version 1 its form in Java's serialisation.
    java = b"\xac\xed\x00\x05t" + len(placeholder).to_bytes(2, "big") + placeholder
    try:
        return tuple(_digest(algorithm, salt, octets)[:end] for octets in (placeholder, java))
    except ValueError as error:
        raise SettingError(setting, f"names an unknown algorithm: {algorithm!r}") from error


def _digest(algorithm: str, salt: str, octets: bytes) -> str:
    lower = algorithm.lower()
    name = lower.replace("-", "_") if lower.startswith("sha3") else lower.replace("-", "")
    return hashlib.new(name, salt.encode() + octets, usedforsecurity=False).hexdigest()
