"""The shapes of a value that was not sent, by type, version and settings of the connector."""

from typing import Final

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.sources.debezium.settings.connector import (
    DEFAULT_PLACEHOLDER,
    BinaryMode,
    ConnectorModes,
    DecimalMode,
    HstoreMode,
    NullPolicy,
    TimeMode,
)
from cdc_platform.sources.debezium.values.detector import ValueState, detector_of
from cdc_platform.sources.debezium.values.unavailable import (
    Shape,
    marker_of,
    masked_markers,
    shapes_of,
    version_of,
)

NEW: Final = (3, 6, 3)
PLAIN: Final = ConnectorModes()
MARKER: Final = DEFAULT_PLACEHOLDER.encode()
TEXTS: Final = (Shape.TEXT,)
UNKNOWN: Final = (Shape.TEXT, Shape.BASE64, Shape.NULL)
CASES: Final = [
    # type, version, modes, shapes
    ("text", NEW, PLAIN, (Shape.TEXT,)),
    ("integer", NEW, PLAIN, ()),
    ("small numeric", NEW, PLAIN, ()),
    ("bytea", NEW, PLAIN, (Shape.BASE64,)),
    ("bytea", NEW, ConnectorModes(binary=BinaryMode.BASE64), (Shape.NULL,)),
    ("bytea", NEW, ConnectorModes(binary=BinaryMode.HEX), (Shape.TEXT,)),
    ("bytea", (2, 5, 4), ConnectorModes(binary=BinaryMode.HEX), (Shape.NULL,)),
    ("bytea[]", NEW, ConnectorModes(binary=BinaryMode.HEX), (Shape.NULL,)),
    ("text[]", NEW, PLAIN, (Shape.TEXT_LIST,)),
    ("text[]", (1, 9, 7), PLAIN, (Shape.NULL,)),
    ("bpchar[]", (3, 0, 2), PLAIN, (Shape.NULL,)),
    ("integer[]", (2, 1, 0), PLAIN, (Shape.OCTET_LIST,)),
    ("date[]", NEW, ConnectorModes(times=TimeMode.CONNECT), (Shape.NULL,)),
    ("date[]", (2, 2, 0), PLAIN, (Shape.NULL,)),
    ("uuid[]", NEW, PLAIN, (Shape.UUID_LIST,)),
    ("uuid[]", (2, 3, 7), PLAIN, (Shape.NULL,)),
    ("hstore", NEW, PLAIN, (Shape.HSTORE_TEXT,)),
    ("hstore", NEW, ConnectorModes(hstore=HstoreMode.MAP), (Shape.HSTORE_MAP,)),
    ("numeric", NEW, PLAIN, (Shape.NULL,)),
    ("numeric", NEW, ConnectorModes(decimals=DecimalMode.STRING), (Shape.TEXT,)),
    ("smallint[]", NEW, PLAIN, (Shape.NULL,)),
    ("string[]", NEW, PLAIN, (Shape.TEXT_LIST, Shape.NULL)),
    ("int4range", NEW, PLAIN, (Shape.TEXT,)),
    ("box", NEW, PLAIN, ()),
    ("text", (0, 9, 5), PLAIN, (Shape.NULL,)),
    ("geometry", NEW, PLAIN, (Shape.NULL,)),
    ("geography", NEW, PLAIN, (Shape.NULL,)),
    *((name, NEW, PLAIN, UNKNOWN) for name in ("vector", "halfvec", "polygon", "path", "words")),
]


@pytest.mark.parametrize(("source", "version", "modes", "expected"), CASES)
def test_shapes(
    source: str, version: tuple[int, ...], modes: ConnectorModes, expected: tuple[Shape, ...]
) -> None:
    """Each type has the shapes that the connector of the version gives it."""
    assert expected == shapes_of(source, version, modes)


MARKERS: Final = [
    # placeholder, shape, JSON value
    ("hex:FF00", Shape.OCTET_LIST, [-1, 0]),
    ("NOPE", Shape.OCTET_LIST, [78, 79, 80, 69]),
    ("NOPE", Shape.UUID_LIST, ["318a39d1-9d2d-3060-9f3e-ad79f2c15e65"]),
    (DEFAULT_PLACEHOLDER, Shape.UUID_LIST, ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
    (DEFAULT_PLACEHOLDER, Shape.BASE64, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
    ("NOPE", Shape.HSTORE_TEXT, '{"NOPE":"NOPE"}'),
]


@pytest.mark.parametrize(("placeholder", "shape", "expected"), MARKERS)
def test_markers_of_a_placeholder(placeholder: str, shape: Shape, expected: object) -> None:
    """A placeholder of one's own has shapes of its own."""
    assert expected == marker_of(shape, ConnectorModes(placeholder=placeholder).placeholder_bytes)


def test_versions_are_compared_by_their_numbers() -> None:
    """An unknown version counts as the newest."""
    expected = (3, 6, 3)
    assert expected == version_of("3.6.3.Final")
    assert version_of("") > version_of("99.1.0.Alpha1")


def test_null_is_judged_by_its_policy() -> None:
    """Null in a type without a marker follows the policy; in others it is NULL."""
    expected = [ValueState.UNAVAILABLE, ValueState.VALUE, ValueState.UNDECIDED]
    plain = detector_of(TEXTS, MARKER, NullPolicy.ERROR)
    policies = (NullPolicy.UNAVAILABLE, NullPolicy.NULL, NullPolicy.ERROR)
    assert expected == [detector_of((Shape.NULL,), MARKER, policy).judge(None) for policy in policies]
    assert plain.judge(None) is ValueState.VALUE


def test_masks_of_markers() -> None:
    """Truncated and hashed markers are found if settings declare them, and otherwise suspected."""
    plain = detector_of(TEXTS, MARKER, NullPolicy.ERROR)
    assert plain.judge("__debezium") is ValueState.MASKED
    assert plain.judge("__") is ValueState.VALUE
    (cut,) = masked_markers("mask", "truncate:10", MARKER)
    masked = detector_of(TEXTS, MARKER, NullPolicy.ERROR, (cut,))
    assert masked.judge("__debezium") is ValueState.UNAVAILABLE
    newer, older = masked_markers("mask", "hash:SHA-256:s:12", MARKER)
    lengths = (12, 12)
    assert lengths == (len(newer), len(older))
    hashed = detector_of(TEXTS, MARKER, NullPolicy.ERROR, is_masked=True)
    assert hashed.judge("0" * 64) is ValueState.MASKED
    with pytest.raises(SettingError):
        masked_markers("mask", "hash:NONE:s", MARKER)
