"""Values of events that no capture has."""

import json
from typing import Any, Final

import pytest

from cdc_platform.sources.debezium.settings.connector import ConnectorModes, DecimalMode, TimeMode
from cdc_platform_tests.sources.debezium.written_events import TABLE, envelope, line, only_event, only_fault

TEXTS: Final = ConnectorModes(decimals=DecimalMode.STRING)
ISO: Final = ConnectorModes(times=TimeMode.ISOSTRING)


def settings(declared: str) -> dict[str, Any]:
    """Return settings for a table with a decimal that arrives as a text."""
    return {"columns": {TABLE: {"id": "integer", "n": declared}}, "connector": TEXTS}


@pytest.mark.parametrize(
    ("declared", "sent", "expected"),
    [
        ("bit varying(20)", "BQ==", "101"),
        ("varbit(1000)", "BQ==", "101"),
        ("bit varying", "BQ==", "101"),
        ("bit varying(20)", "", ""),
        ("bit varying(1)", True, True),
        ("bit(11)", "BQ==", "00000000101"),
        ("bit(11)", "", "00000000000"),
        ("bit", True, True),
        ("char(6)", "ab    ", "ab    "),
        ("varchar(6)", "ab ", "ab "),
    ],
)
def test_a_length_is_that_of_each_value_in_fixed_types_only(declared: str, sent: Any, expected: Any) -> None:
    """Zeros at the beginning belong to `bit(n)`; nothing shows how many a `bit varying` had."""
    columns = {TABLE: {"id": "integer", "n": declared}}
    row = line(envelope("c", after={"id": 1, "n": sent}), {"id": 1})
    assert json.loads(only_event(row, columns=columns).new_values or "") == {"n": expected}


@pytest.mark.parametrize(
    ("sent", "expected"),
    [("NAN", "NaN"), ("POSITIVE_INFINITY", "Infinity"), ("NEGATIVE_INFINITY", "-Infinity")],
)
def test_decimals_that_are_no_numbers(sent: str, expected: str) -> None:
    """The connector spells them as Java does; a text of the lake has PostgreSQL's names, a decimal none."""
    row = line(envelope("c", after={"id": 1, "n": sent}), {"id": 1})
    assert json.loads(only_event(row, **settings("numeric")).new_values or "") == {"n": expected}
    assert "Declare the column as `numeric`" in only_fault(row, **settings("numeric(10,2)")).reason


@pytest.mark.parametrize("sent", ["1_0", "\u0661\u0662", " 1", "1\n", "0x1", "", "1e"])
@pytest.mark.parametrize("declared", ["numeric", "numeric(10,2)"])
def test_texts_that_only_python_takes_for_numbers(sent: str, declared: str) -> None:
    """Spaces, underscores and digits of other scripts are not part of a number."""
    row = line(envelope("c", after={"id": 1, "n": sent}), {"id": 1})
    assert "The value of the column `n` is not a value of" in only_fault(row, **settings(declared)).reason


@pytest.mark.parametrize(
    ("declared", "sent", "connector"),
    [
        ("bigint", 10**20, TEXTS),
        ("numeric(5,2)", "1" * 22, TEXTS),
        ("numeric(5,2)", "1.001", TEXTS),
        ("timestamp", "2024-99-99T99:99:99Z", ISO),
        ("time", "25:61:00Z", ISO),
        ("bit(83886080)", "AQ==", TEXTS),
        ("numeric[]", ["1e149999"] * 400, TEXTS),
    ],
)
def test_what_its_type_cannot_hold_is_refused(declared: str, sent: Any, connector: ConnectorModes) -> None:
    """It must not get into the log: a table that does not know its column yet would not judge it."""
    row = line(envelope("c", after={"id": 1, "n": sent}), {"id": 1})
    fault = only_fault(row, **{**settings(declared), "connector": connector})
    assert "The value of the column `n`" in fault.reason
