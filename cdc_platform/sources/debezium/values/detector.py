"""Detectors of values that were not sent, one for each column."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from cdc_platform.sources.debezium.settings.connector import NullPolicy
from cdc_platform.sources.debezium.values.unavailable import Shape, marker_of

_SHORTEST_CUT: Final = 6
"""Characters of the placeholder that cannot be a coincidence."""
_DIGEST: Final = re.compile(r"[0-9a-f]{32,128}", re.ASCII)
_MAX_DIGEST_CHARACTERS: Final = 128


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
