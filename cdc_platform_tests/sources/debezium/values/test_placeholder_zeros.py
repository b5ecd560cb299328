"""Placeholders of the connector for an unknown NOT NULL value, by encoding."""

from typing import Any, Final

import pytest

from cdc_platform.sources.debezium.settings.connector import (
    BinaryMode,
    ConnectorModes,
    DecimalMode,
    HstoreMode,
    IntervalMode,
    TimeMode,
)
from cdc_platform.sources.debezium.values.encodings import declared_encoding
from cdc_platform.sources.debezium.values.placeholder_zeros import is_zero
from cdc_platform.sources.debezium.values.postgres_types import PostgresType

PLAIN: Final = ConnectorModes()
TEXTS: Final = ConnectorModes(
    decimals=DecimalMode.STRING,
    times=TimeMode.ISOSTRING,
    binary=BinaryMode.HEX,
    intervals=IntervalMode.STRING,
    hstore=HstoreMode.MAP,
)
CASES: Final[list[tuple[str, ConnectorModes, Any, Any]]] = [
    # type, modes, what stands for nothing, a value that says something
    ("boolean", PLAIN, False, True),
    ("integer", PLAIN, 0, 1),
    ("double precision", PLAIN, 0.0, "NaN"),
    ("numeric", PLAIN, {"scale": 0, "value": "AA=="}, {"scale": 0, "value": "AQ=="}),
    ("numeric(10,2)", PLAIN, "AA==", "AQ=="),
    ("numeric(10,2)", TEXTS, "0.00", "0.01"),
    ("money", TEXTS, "0.00", "POSITIVE_INFINITY"),
    ("numeric", ConnectorModes(decimals=DecimalMode.DOUBLE), 0.0, 0.5),
    ("text", PLAIN, "", "0"),
    ("text", PLAIN, "", "{}"),
    ("words", PLAIN, "", "word"),
    ("domain_over_json", PLAIN, "{}", "[]"),
    ("jsonb", PLAIN, "{}", "[]"),
    ("uuid", PLAIN, "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001"),
    ("bytea", PLAIN, "", "AA=="),
    ("bytea", TEXTS, "", "00"),
    ("bit(11)", PLAIN, "AAA=", "AQA="),
    ("date", PLAIN, 0, 1),
    ("date", TEXTS, "1970-01-01Z", "1970-01-02Z"),
    ("time", PLAIN, 0, 1),
    ("time", TEXTS, "00:00:00Z", "00:00:01Z"),
    ("timetz", PLAIN, "00:00:00Z", "01:00:00Z"),
    ("timestamp", PLAIN, 0, 1),
    ("timestamp", TEXTS, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.1Z"),
    ("timestamptz", PLAIN, "1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000001Z"),
    ("interval", PLAIN, 0, 1),
    ("interval", TEXTS, "P0Y0M0DT0H0M0S", "P0Y0M1DT0H0M0S"),
    ("interval", TEXTS, "P0Y0M0DT0H0M0.0S", "P0Y0M0DT0H0M0.1S"),
    (
        "point",
        PLAIN,
        {"x": 0.0, "y": 0.0, "wkb": "AQEAAAAAAAAAAAAAAAAAAAAAAAAA", "srid": None},
        {"x": 1.0, "y": 0.0, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": None},
    ),
    ("geometry", PLAIN, {"wkb": "AQcAAAAAAAAA", "srid": None}, {"wkb": "AQcAAAAAAAAA", "srid": 4326}),
    ("hstore", PLAIN, "{}", '{"a":"b"}'),
    ("hstore", TEXTS, {}, {"a": "b"}),
    ("integer[]", PLAIN, [], [0]),
]


@pytest.mark.parametrize(("declared", "modes", "zero", "value"), CASES)
def test_zeros(declared: str, modes: ConnectorModes, zero: Any, value: Any) -> None:
    """Each encoding has its own zero, which is not content, and anything else is."""
    encoding = declared_encoding(PostgresType.parse(declared), modes)
    assert is_zero(encoding, zero)
    assert not is_zero(encoding, value)


def test_what_is_no_value_of_the_encoding_is_no_zero() -> None:
    """A value that cannot be read is not taken for one that was made up."""
    encoding = declared_encoding(PostgresType.parse("numeric"), PLAIN)
    values: list[Any] = ["?", {}, 0, ["AA=="]]
    assert not any(is_zero(encoding, value) for value in values)
