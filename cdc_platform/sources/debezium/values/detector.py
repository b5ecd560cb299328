"""Detectors of values that were not sent, one for each column, and the evidence about its type."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from cdc_platform.sources.debezium.settings.connector import (
    BinaryMode,
    ConnectorModes,
    DecimalMode,
    HstoreMode,
    NullPolicy,
    TimeMode,
)
from cdc_platform.sources.debezium.values.block_encodings import block_encoding
from cdc_platform.sources.debezium.values.encodings import Encoding, EncodingKind
from cdc_platform.sources.debezium.values.postgres_types import TEXT
from cdc_platform.sources.debezium.values.unavailable import Shape, Version, is_known, marker_of, shapes_of

_SHORTEST_CUT: Final = 6
"""Characters of the placeholder that cannot be a coincidence."""
_DIGEST: Final = re.compile(r"[0-9a-f]{32,128}", re.ASCII)
_MAX_DIGEST_CHARACTERS: Final = 128


class ValueState(StrEnum):
    """Whether an event has the value of a column, and if not, why."""

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

    def doubtful_places(self, values: Sequence[Any]) -> list[int]:
        """Return the places of values that `judge` must decide on; all others certainly are values."""
        texts = [marker for marker in (*self.markers, self.placeholder) if isinstance(marker, str)]
        longest = max(_MAX_DIGEST_CHARACTERS if self.is_masked else 0, *map(len, texts))
        return [
            place for place, value in enumerate(values) if type(value) is not str or len(value) <= longest
        ]

    @property
    def is_needed(self) -> bool:
        """Whether an update may contain something other than values."""
        return bool(self.markers or self.placeholder) or self.null_policy is not None

    @property
    def doubts_null(self) -> bool:
        """Whether null in an update may stand for a value that was not sent."""
        return self.judge(None) is not VALUE

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


_TIMES: Final[Mapping[str, TimeMode]] = {
    # logical name: a mode that has it
    "io.debezium.time.Date": TimeMode.ADAPTIVE,
    "io.debezium.time.IsoDate": TimeMode.ISOSTRING,
    "org.apache.kafka.connect.data.Date": TimeMode.CONNECT,
}


def evidence_of(
    field: Mapping[str, Any] | None, declaration: Encoding | None, version: Version, modes: ConnectorModes
) -> tuple[str, tuple[Shape, ...]]:
    """Return the type that determines the form of a column's unavailable values, and its possible shapes.

    There are no shapes for a type whose values are always sent.

    Args:
        field: field of the schema block.
        declaration: encoding of the declared or propagated type.
        version: version of the connector.
        modes: modes of the connector in the settings.
    """
    if field is None:
        source = declaration.source if declaration is not None else ""
        return source, shapes_of(source, version, modes)
    encoding, block_modes = block_encoding(field), _block_modes(field, modes)
    if declaration is not None and _is_of(encoding, declaration):
        return declaration.source, shapes_of(declaration.source, version, block_modes)
    shapes = shapes_of(encoding.source, version, block_modes)
    may_be_null = _may_be_another(encoding.source, declaration, version, modes) and Shape.NULL not in shapes
    return encoding.source, (*shapes, Shape.NULL) if may_be_null else shapes


def _is_of(encoding: Encoding, declaration: Encoding) -> bool:
    """Return whether the declared type is the column's own, not a text that holds values of another type."""
    return is_known(declaration.source) and (
        declaration.kind is not EncodingKind.TEXT or encoding.kind is EncodingKind.TEXT
    )


def _may_be_another(name: str, declaration: Encoding | None, version: Version, modes: ConnectorModes) -> bool:
    """Return whether a type without a marker may look like the type of the schema block.

    The connector chooses the marker of arrays and of hstore by the name of the type, and a domain over such
    a type has another name. `oid[]` and `hstore[]` look like `bigint[]` and `json[]`.
    """
    if name == TEXT:  # bytes that the connector encodes as text
        return Shape.NULL in shapes_of("bytea", version, modes)
    if name == "double precision":
        return modes.decimals is DecimalMode.DOUBLE
    return name.endswith("[]") or (name in {"json", "hstore"} and declaration is not None)


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
