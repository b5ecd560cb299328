"""Arrays: an element is read as the value of a column of its type is, by found and declared types alike."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.sources.datastream.files.avro_values import avro_reader
from cdc_platform.sources.datastream.files.file_events import decode_file
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.settings.declarations import declared_type
from cdc_platform.sources.datastream.values.rows import NativeReader, column_reader
from cdc_platform.sources.datastream.values.types import FieldType, Kind
from cdc_platform.sources.datastream.values.values import json_reader
from cdc_platform_tests.support.datastream.files import MadeEvent

MOMENT: Final = "2024-01-01T02:00:00+02:00"
DOCUMENT: Final = '{"a":1,"a":2}'
JSON_VALUES: Final[dict[Kind, list[Any]]] = {
    Kind.TIMESTAMP_WITH_TIMEZONE: [MOMENT, "infinity"],
    Kind.TIMESTAMP: [MOMENT, "2024-01-01T10:00:00Z", "infinity"],
    Kind.DATE: ["2024-01-01", "infinity"],
    Kind.TIME_WITH_TIMEZONE: ["10:00:00+02:00"],
    Kind.LONG: [5, 2**60],
    Kind.NUMBER: ["12345678901234567890.5"],
    Kind.DOUBLE: [1.5, "NaN"],
    Kind.STRING: ["a", DOCUMENT, "69b71d"],
    Kind.JSON: [{"a": 1}, "a", 5],
    Kind.BYTES: ["YWJj", "69b71d", "\\x69b71d"],
}
AVRO_VALUES: Final[dict[Kind, list[Any]]] = {
    Kind.TIMESTAMP_WITH_TIMEZONE: [{"timestamp": 1_704_096_000_000_000, "offset": 7_200_000}],
    Kind.TIMESTAMP: [1_704_096_000_000_000, 9_223_372_036_825_200_000],
    Kind.TIME_WITH_TIMEZONE: [{"time": 36_000_000_000, "offset": 7_200_000}],
    Kind.LONG: [5, 2**60],
    Kind.STRING: ["a", DOCUMENT],
    Kind.JSON: [DOCUMENT, '"a"'],
    Kind.BYTES: [bytes.fromhex("69b71d")],
    Kind.DOUBLE: [float("nan")],
}
DECLARED: Final = (
    *("DATETIME", "DATE", "TIMESTAMP", "TIME", "STRING", "JSON"),
    *("BYTES", "BYTES(hex)", "INT64", "FLOAT64", "NUMBER", "DECIMAL(30,2)", "BOOL"),
)


def outcome(field: FieldType, declared: str | None, native: NativeReader, value: Any) -> tuple[str, Any]:
    """Return what is read of a value, or why nothing is."""
    try:
        reader = column_reader(field, None if declared is None else declared_type(declared), native)
        return "value", value if reader is None else reader(value)
    except (ValueError, TypeError) as error:
        return "refused", str(error)


def cases() -> Iterator[tuple[NativeReader, Kind, str | None, Any]]:
    """Yield values of each kind in each format, with what they may be declared as."""
    for native, values_by_kind in ((json_reader, JSON_VALUES), (avro_reader, AVRO_VALUES)):
        for kind, values in values_by_kind.items():
            yield from ((native, kind, declared, value) for declared in (None, *DECLARED) for value in values)


def test_an_element_is_read_as_a_column() -> None:
    """An array of one element has the value of a column of its type, or is refused for the same reason."""
    for native, kind, declared, value in cases():
        result, expected = outcome(FieldType(kind), declared, native, value)
        array = FieldType(Kind.ARRAY, element=FieldType(kind))
        as_array = None if declared is None else f"ARRAY<{declared}>"
        # NaN equals nothing but its text.
        of_column = repr((result, [expected] if result == "value" else expected))
        of_array = repr(outcome(array, as_array, native, [value]))
        assert of_column == of_array, (native, kind, declared, value)


@pytest.mark.parametrize(
    ("kind", "declared", "expected"),
    [
        (Kind.JSON, None, [DOCUMENT, "-0", "null", '"x"']),
        (Kind.JSON, "ARRAY<JSON>", [DOCUMENT, "-0", "null", '"x"']),
        (None, "ARRAY<JSON>", [DOCUMENT, "-0", "null", '"x"']),
        (Kind.STRING, None, [DOCUMENT, "0", None, "x"]),
        (None, "ARRAY<STRING>", [DOCUMENT, "0", None, "x"]),
    ],
)
def test_documents_in_arrays_are_kept(kind: Kind | None, declared: str | None, expected: list[Any]) -> None:
    """Duplicate members stay, and so does the sign of a zero of a JSON element."""
    event = json.dumps(MadeEvent("u", "users", "INSERT", 100, {"id": 1, "v": "@"}).to_json())
    line = event.replace('"@"', f'[{DOCUMENT}, -0, null, "x"]').encode()
    columns = {"users": {"v": declared}} if declared else {}
    settings = DatastreamSettings("x", table_name="{table}", columns=columns)
    array = FieldType(Kind.ARRAY, element=FieldType(kind or Kind.STRING))
    fields = {"a1": (("id", FieldType(Kind.LONG)), ("v", array))} if kind is not None else {}
    (decoded,) = decode_file(settings, line, fields)
    assert isinstance(decoded, SourceEvent), decoded
    expected = [None if value == "null" else value for value in expected]
    assert expected == json.loads(decoded.new_values or "")["v"]


@pytest.mark.parametrize("value", [5, 2**60, 2**70])
@pytest.mark.parametrize("kind", [Kind.LONG, Kind.NUMBER, Kind.JSON])
def test_a_number_that_is_declared_json_is_a_number(kind: Kind, value: int) -> None:
    """Neither its size nor the type in the schema makes a text of it."""
    sent = str(value) if kind is Kind.NUMBER else value
    result, read = outcome(FieldType(kind), "JSON", json_reader, sent)
    if result == "refused":
        assert (kind, value) == (Kind.LONG, 2**70)
    else:
        assert str(value) == read


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.TIME, "10:99:00"),
        (Kind.TIME, "10:00:99"),
        (Kind.TIMESTAMP, "2024-01-01T10:00:00+02:60"),
        (Kind.TIME_WITH_TIMEZONE, "10:00:00+02:60"),
    ],
)
def test_no_time_is_carried_over(kind: Kind, text: str) -> None:
    """Minutes and seconds beyond 59 are refused, not added to what is before them."""
    assert outcome(FieldType(kind), None, json_reader, text)[0] == "refused"


def test_an_array_of_texts_with_lengths_is_one() -> None:
    """Datastream's records of a text and its length are texts, in an array, too."""
    event = json.dumps(MadeEvent("u", "users", "INSERT", 100, {"id": 1, "v": "@"}).to_json())
    line = event.replace('"@"', '[{"value": "x", "length": 1}, "y", null]').encode()
    fields = {
        "a1": (("id", FieldType(Kind.LONG)), ("v", FieldType(Kind.ARRAY, element=FieldType(Kind.VARCHAR))))
    }
    (decoded,) = decode_file(DatastreamSettings("x"), line, fields)
    assert isinstance(decoded, SourceEvent), decoded
    assert json.loads(decoded.new_values or "")["v"] == ["x", "y", None]
