"""Shapes of values that were not sent, which depend on the column's type, the connector and its settings."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
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
from cdc_platform.sources.debezium.settings.policies import NullPolicy
from cdc_platform.sources.debezium.values.postgres_types import STRING_ARRAY

Version = tuple[int, ...]
NEWEST: Final[Version] = (9999,)
_NUMBERS: Final = re.compile(r"\d+")
_SHORTEST_CUT: Final = 6
"""Characters of the placeholder that cannot be a coincidence."""
_DIGEST: Final = re.compile(r"[0-9a-f]{32,128}", re.ASCII)
_MAX_DIGEST_CHARACTERS: Final = 128


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
    text, encoded = placeholder.decode(errors="replace"), base64.b64encode(placeholder).decode()
    markers: Mapping[Shape, Any] = {
        Shape.TEXT: text,
        Shape.BASE64: encoded,
        Shape.TEXT_LIST: [text],
        Shape.BASE64_LIST: [encoded],
        Shape.OCTET_LIST: list(memoryview(placeholder).cast("b")),
        Shape.UUID_LIST: [str(_named_uuid(placeholder))],
        Shape.HSTORE_TEXT: json.dumps({text: text}, ensure_ascii=False, separators=(",", ":")),
        Shape.HSTORE_MAP: {text: text},
    }
    return markers[shape]


def _named_uuid(name: bytes) -> UUID:
    """Return Java's UUID of a name, which has no namespace."""
    return UUID(bytes=hashlib.md5(name, usedforsecurity=False).digest(), version=3)


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
    # The second version hashes the text, the first one Java's serialised form of it.
    java = b"\xac\xed\x00\x05t" + len(placeholder).to_bytes(2, "big") + placeholder
    try:
        return tuple(_digest(algorithm, salt, octets)[:end] for octets in (placeholder, java))
    except ValueError as error:
        raise SettingError(setting, f"names an unknown algorithm: {algorithm!r}") from error


def _digest(algorithm: str, salt: str, octets: bytes) -> str:
    lower = algorithm.lower()
    name = lower.replace("-", "_") if lower.startswith("sha3") else lower.replace("-", "")
    return hashlib.new(name, salt.encode() + octets, usedforsecurity=False).hexdigest()


class ValueState(StrEnum):
    """State of a value of an update."""

    VALUE = "value"
    """A value, or NULL."""
    UNAVAILABLE = "unavailable"
    """The value was not sent."""
    UNDECIDED = "undecided"
    """Null, whose meaning in such a column is not configured."""
    MASKED = "masked"
    """A value that looks like a marker masked by the connector."""


# Python 3.11 takes ten times as long to look a member up in its enum.
VALUE, UNAVAILABLE, UNDECIDED, MASKED = ValueState


@dataclass(frozen=True, slots=True)
class Detector:
    """Distinguishes values of one column from markers; one detector checks all values of the column.

    ``null_policy`` is None if null means NULL.
    """

    markers: tuple[Any, ...]
    null_policy: NullPolicy | None
    placeholder: str = ""
    is_masked: bool = False

    def judge(self, value: Any) -> ValueState:
        """Return the state of a value of an update."""
        if value is None:
            return _OF_NULL[self.null_policy]
        if value in self.markers:
            return UNAVAILABLE
        return MASKED if self._is_suspicious(value) else VALUE

    def doubtful(self, values: Sequence[Any]) -> list[int]:
        """Return the places of all values of updates that may be something else, most of which are not."""
        texts = [marker for marker in (*self.markers, self.placeholder) if isinstance(marker, str)]
        longest = max(_MAX_DIGEST_CHARACTERS if self.is_masked else 0, *map(len, texts))
        return [
            place for place, value in enumerate(values) if type(value) is not str or len(value) <= longest
        ]

    @property
    def is_needed(self) -> bool:
        """Whether an update may contain something other than values."""
        return bool(self.markers or self.placeholder) or self.null_policy is not None

    def is_marker(self, value: Any) -> bool:
        """Return whether a value equals a marker, regardless of its state."""
        return value is not None and value in self.markers

    def _is_suspicious(self, value: Any) -> bool:
        if not isinstance(value, str) or not self.placeholder:
            return False
        if self.is_masked:
            return _DIGEST.fullmatch(value) is not None
        return len(value) >= _SHORTEST_CUT and self.placeholder.startswith(value)


_OF_NULL: Final = {
    None: VALUE,
    NullPolicy.NULL: VALUE,
    NullPolicy.UNAVAILABLE: UNAVAILABLE,
    NullPolicy.ERROR: UNDECIDED,
}


def detector_of(
    shapes: tuple[Shape, ...],
    placeholder: bytes,
    null_policy: NullPolicy,
    masks: tuple[str, ...] = (),
    *,
    is_masked: bool = False,
) -> Detector:
    """Return the detector of a column.

    Args:
        shapes: shapes of its type.
        placeholder: placeholder of the connector.
        null_policy: meaning of null if it is one of the shapes.
        masks: forms of the marker after the connector has masked the column.
        is_masked: whether the connector hashes the column in an unspecified way.
    """
    markers = [marker_of(shape, placeholder) for shape in shapes if shape is not Shape.NULL]
    has_text = Shape.TEXT in shapes
    text = placeholder.decode(errors="replace") if has_text and not masks else ""
    policy = null_policy if Shape.NULL in shapes else None
    return Detector((*markers, *masks), policy, text, is_masked and not masks)
