"""The same event in Avro and in JSON is the same event."""

from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings

from cdc_platform.sources.datastream.files.avro_files import schema_of_avro
from cdc_platform.sources.datastream.files.decoding import Decoding
from cdc_platform_tests.strategies import unified_rows
from cdc_platform_tests.support.datastream.envelopes import Envelope, read_events
from cdc_platform_tests.unified_types import UNIFIED, unified_files


@settings(max_examples=60, deadline=None)
@given(unified_rows())
def test_a_row_does_not_depend_on_its_format(typed: tuple[list[str], list[list[Any]]]) -> None:
    """Rows of any unified types are equal from both formats, columns and types included."""
    types, rows = typed
    avro, lines = unified_files(types, rows)
    named_fields = schema_of_avro(BytesIO(avro))
    assert named_fields is not None
    from_avro = list(read_events(avro, Decoding()))
    assert from_avro == list(read_events(lines, Decoding(schemas=dict([named_fields]))))
    assert len(rows) == sum(isinstance(event, Envelope) for event in from_avro)


EDGES: list[tuple[str, Any, str, Any]] = [
    # unified type, as Avro stores it, the lake's type, the value in both formats
    ("DECIMAL", (10**65 - 1).to_bytes(28, signed=True), "DECIMAL(65,30)", f"{'9' * 35}.{'9' * 30}"),
    ("DECIMAL", (-1).to_bytes(1, signed=True), "DECIMAL(65,30)", f"-0.{'0' * 29}1"),
    ("DECIMAL", b"\x00", "DECIMAL(65,30)", f"0.{'0' * 30}"),
    ("NUMBER", "18446744073709551615", "PG_NUMERIC", "18446744073709551615"),
    ("LONG", 2**53, "INT64", 2**53),
    ("LONG", 2**53 + 1, "INT64", "9007199254740993"),
    ("LONG", -(2**63), "INT64", "-9223372036854775808"),
    ("LONG", 2**63 - 1, "INT64", "9223372036854775807"),
    ("LONG", -1, "INT64", -1),  # MySQL's BIT(64) with all bits set
    ("TIME_INTERVAL", -((838 * 60 + 59) * 60 + 59) * 10**6, "INTERVAL", "-838:59:59"),
    ("TIME_INTERVAL", 1, "INTERVAL", "00:00:00.000001"),
    ("TIMESTAMP", -62_135_596_800_000_000, "TIMESTAMP", "0001-01-01T00:00:00.000000Z"),
    ("TIMESTAMP", 253_402_300_799_999_999, "TIMESTAMP", "9999-12-31T23:59:59.999999Z"),
    ("DATE", -719_162, "DATE", "0001-01-01"),
    ("DATETIME", {"date": 0, "time": 1}, "DATETIME", "1970-01-01T00:00:00.000001"),
    (
        "TIMESTAMP_WITH_TIMEZONE",
        {"timestamp": 0, "offset": -12_600_000},
        "TIMESTAMP",
        "1970-01-01T00:00:00.000000Z",
    ),
    ("TIME_WITH_TIMEZONE", {"time": 1_000_000, "offset": 19_800_000}, "STRING", "00:00:01+05:30"),
    ("INTERVAL", {"months": 14, "hours": 30, "micros": 500_000}, "INTERVAL", "P14MT30H0.500000S"),
    ("INTERVAL", {"months": 0, "hours": 0, "micros": 0}, "INTERVAL", "PT0S"),
    ("DOUBLE", float("nan"), "FLOAT64", "NaN"),
    ("DOUBLE", float("-inf"), "FLOAT64", "-Infinity"),
    ("FLOAT", 0.10000000149011612, "FLOAT32", 0.10000000149011612),
    ("BYTES", b"", "BYTES", ""),
    ("BYTES", b"\x00\xff\x10", "BYTES", "AP8Q"),
    (
        "JSON",
        '{"b": [1.50, 1e400, 123456789012345678901], "a": "\\u00e9"}',
        "JSON",
        '{"b":[1.50,1e400,123456789012345678901],"a":"é"}',
    ),
    ("ARRAY", {"nestedArray": [], "elementValue": None}, "ARRAY<INT64>", []),
]


@pytest.mark.parametrize(("kind", "stored", "lake_type", "expected"), EDGES)
def test_edges_of_types_are_exact(kind: str, stored: Any, lake_type: str, expected: Any) -> None:
    """Both formats give the same values at the limits of each type."""
    avro, lines = unified_files([kind], [[stored]])
    named_fields = schema_of_avro(BytesIO(avro))
    assert named_fields is not None
    for event in (
        *read_events(avro, Decoding()),
        *read_events(lines, Decoding(schemas=dict([named_fields]))),
    ):
        assert isinstance(event, Envelope), event
        assert [("c0", lake_type)] == [(name, column_type.text) for name, column_type in event.columns]
        assert {"c0": expected} == event.values


def test_nested_null_and_missing_elements_stay() -> None:
    """An array's NULL elements, and a column that is NULL, are NULL in both formats."""
    items = [{"nestedArray": None, "elementValue": value} for value in (1, None, 2**60)]
    avro, lines = unified_files(["ARRAY", "JSON"], [[{"nestedArray": items, "elementValue": None}, None]])
    named_fields = schema_of_avro(BytesIO(avro))
    assert named_fields is not None
    for event in (
        *read_events(avro, Decoding()),
        *read_events(lines, Decoding(schemas=dict([named_fields]))),
    ):
        assert isinstance(event, Envelope), event
        assert {"c0": [1, None, str(2**60)], "c1": None} == event.values


def test_every_unified_type_is_compared() -> None:
    """The table of edges leaves out no type but those without any."""
    assert {"BOOLEAN", "INTEGER", "STRING", "VARCHAR", "TIME"} == UNIFIED.keys() - {edge[0] for edge in EDGES}
