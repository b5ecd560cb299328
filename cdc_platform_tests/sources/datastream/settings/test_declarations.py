"""Declared types, and guessed types of undeclared columns."""

import json
from typing import Any

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.datastream.files.decoding import Decoding
from cdc_platform.sources.datastream.settings.declarations import declarations, declared_type
from cdc_platform.sources.datastream.values.moments import INFINITY_MICROS, MINUS_INFINITY_MICROS
from cdc_platform.sources.datastream.values.rows import column_reader
from cdc_platform.sources.datastream.values.types import FieldType, Kind
from cdc_platform.sources.datastream.values.values import json_reader
from cdc_platform_tests.support.datastream.envelopes import Envelope, read_events
from cdc_platform_tests.unified_types import avro_file, event_schema, json_line

MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 65, "scale": 30}
ZONED = {
    "type": "record",
    "name": "timestampTz",
    "fields": [
        {"name": "timestamp", "type": MICROS},
        {"name": "offset", "type": {"type": "int", "logicalType": "time-millis"}},
    ],
}
NUMBER = {"type": "string", "logicalType": "number"}
ARRAY = {
    "type": "record",
    "name": "multidimensionalArray_c",
    "fields": [
        {"name": "nestedArray", "type": ["null", {"type": "array", "items": "multidimensionalArray_c"}]},
        {"name": "elementValue", "type": ["null", "int"]},
    ],
}
GEOMETRY = {
    "type": "record",
    "name": "geometry",
    "fields": [{"name": "value", "type": "bytes"}, {"name": "srid", "type": "int"}],
}
DAY = 86_400_000_000
GREAT = (10**64).to_bytes(28, signed=True)
HALF = (5 * 10**29).to_bytes(28, signed=True)
MATRIX = {
    "nestedArray": [{"nestedArray": [{"nestedArray": None, "elementValue": 7}], "elementValue": None}],
    "elementValue": None,
}


def decoding(declared: str | None) -> Decoding:
    """Return what is known of column `c`."""
    return Decoding(declarations({"s.t": {"c": declared}}) if declared else {})


def from_avro(schema: Any, stored: Any, declared: str | None) -> Envelope | FaultyEvent:
    """Return the event of a file with one column and row."""
    [event] = read_events(avro_file(event_schema([("c", schema)]), [{"c": stored}]), decoding(declared))
    return event


def from_json(texts: list[str], declared: str | None = None) -> list[Envelope | FaultyEvent]:
    """Return the events of a file of lines with one column, each of which has a value."""
    lines = [json_line(ordinal, {"c": text}) for ordinal, text in enumerate(texts)]
    return list(read_events("\n".join(lines).encode(), decoding(declared)))


DECIMAL_4_2 = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
LARGE = (12_345_678).to_bytes(4, signed=True)

DECLARED: list[tuple[Any, Any, str | None, str, Any]] = [
    # Avro schema, stored, declared, the lake's type, the value; None: the event is faulty
    (MICROS, 3 * DAY, "DATE", "DATE", "1970-01-04"),  # MySQL's DATE
    (MICROS, 3 * DAY + 1, "DATE", "DATE", None),  # which has a time of day
    (MICROS, 1, "DATETIME", "DATETIME", "1970-01-01T00:00:00.000001"),
    (ZONED, {"timestamp": 0, "offset": 0}, "DATETIME", "DATETIME", "1970-01-01T00:00:00.000000"),
    (ZONED, {"timestamp": 0, "offset": 3_600_000}, "DATETIME", "DATETIME", None),  # whose clock shows 01:00
    (MICROS, INFINITY_MICROS, None, "TIMESTAMP", "9999-12-31T23:59:59.999999Z"),
    (MICROS, MINUS_INFINITY_MICROS, None, "TIMESTAMP", "0001-01-01T00:00:00.000000Z"),
    (MICROS, INFINITY_MICROS, "STRING", "STRING", "infinity"),
    (MICROS, MINUS_INFINITY_MICROS, "STRING", "STRING", "-infinity"),
    (MICROS, INFINITY_MICROS, "DATE", "DATE", "9999-12-31"),
    (MICROS, -62_135_596_800_000_001, None, "TIMESTAMP", None),
    (MICROS, -62_135_596_800_000_001, "STRING", "STRING", "0000-12-31T23:59:59.999999Z"),
    (MICROS, 253_402_300_800_000_000, "STRING", "STRING", "+10000-01-01T00:00:00.000000Z"),
    (MICROS, 0, "STRING", "STRING", "1970-01-01T00:00:00.000000Z"),
    ({"type": "int", "logicalType": "date"}, 2**31 - 1, None, "DATE", "9999-12-31"),
    ({"type": "int", "logicalType": "date"}, 2_932_897, "STRING", "STRING", "+10000-01-01"),
    (DECIMAL, HALF, "DECIMAL(38,10)", "DECIMAL(38,10)", "0.5000000000"),
    (DECIMAL, HALF, "DECIMAL(38,0)", "DECIMAL(38,0)", None),  # would be rounded
    (DECIMAL, HALF, "FLOAT64", "FLOAT64", 0.5),
    (DECIMAL, GREAT, "DECIMAL(38,3)", "DECIMAL(38,3)", f"1{'0' * 34}.000"),
    (DECIMAL, GREAT, "DECIMAL(38,4)", "DECIMAL(38,4)", None),  # has too many digits before the point
    (NUMBER, "18446744073709551615", "DECIMAL(20,0)", "DECIMAL(20,0)", "18446744073709551615"),
    (NUMBER, "18446744073709551615", "INT64", "INT64", None),
    (NUMBER, "12.50", "FLOAT64", "FLOAT64", 12.5),
    ("int", 1, "BOOL", "BOOL", True),
    ("int", 2, "BOOL", "BOOL", None),
    ("string", "00ff10", None, "STRING", "00ff10"),  # MySQL's BINARY
    ("string", "00ff10", "BYTES(hex)", "BYTES", "AP8Q"),
    ("string", "AP8Q", "BYTES", "BYTES", "AP8Q"),
    ("string", "\\x00ff10", "BYTES", "BYTES", "AP8Q"),
    ("string", "00ff1", "BYTES(hex)", "BYTES", None),
    ("string", '{"a": 1.50}', "JSON", "JSON", '{"a":1.50}'),
    ("string", "2024-02-29 01:02:03", "TIMESTAMP", "TIMESTAMP", "2024-02-29T01:02:03.000000Z"),
    (ARRAY, MATRIX, None, "ARRAY<INT64>", None),
    (ARRAY, MATRIX, "JSON", "JSON", "[[7]]"),
    (ARRAY, {"nestedArray": None, "elementValue": None}, None, "ARRAY<INT64>", []),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", None, "STRING", "B"),
    ({"type": "map", "values": "long"}, {"k": 2**60}, None, "JSON", f'{{"k":{2**60}}}'),
    (["string", "long"], 5, None, "JSON", "5"),
    (
        {
            "type": "record",
            "name": "g",
            "fields": [{"name": "value", "type": "bytes"}, {"name": "srid", "type": "int"}],
        },
        {"value": b"\x00\xff", "srid": 4326},
        None,
        "JSON",
        '{"value":"AP8=","srid":4326}',
    ),
    (
        {
            "type": "record",
            "name": "v",
            "fields": [{"name": "value", "type": "string"}, {"name": "length", "type": "int"}],
        },
        {"value": "text", "length": 20},
        None,
        "STRING",
        "text",
    ),
    # What is declared judges a decimal of more digits than its own type has.
    (DECIMAL_4_2, LARGE, None, "DECIMAL(4,2)", None),
    (DECIMAL_4_2, LARGE, "DECIMAL(10,2)", "DECIMAL(10,2)", "123456.78"),
    (DECIMAL_4_2, LARGE, "DECIMAL(5,2)", "DECIMAL(5,2)", None),
    (DECIMAL_4_2, LARGE, "NUMBER", "PG_NUMERIC", "123456.78"),
    (DECIMAL_4_2, LARGE, "STRING", "STRING", "123456.78"),
    # Bytes are bytes already, though their base64 is hex digits, too.
    ("bytes", b"\x69\xb7\x1d", "BYTES(hex)", "BYTES", "abcd"),
]


@pytest.mark.parametrize(("schema", "stored", "declared", "lake_type", "expected"), DECLARED)
def test_declared_types_of_avro(
    schema: Any, stored: Any, declared: str | None, lake_type: str, expected: Any
) -> None:
    """A value becomes one of the declared type without loss, or its event is faulty and says why."""
    event = from_avro(schema, stored, declared)
    if expected is None:
        assert isinstance(event, FaultyEvent)
        assert event.reason.startswith("Column `c`: ")
        return
    assert isinstance(event, Envelope), event
    assert [lake_type] == [column_type.text for _, column_type in event.columns]
    assert {"c": expected} == event.values


def test_a_logical_type_next_to_the_field_counts() -> None:
    """The oldest files have the logical type at the field, not at its type."""
    schema = event_schema([("c", "long")])
    payload = next(field for field in schema["fields"] if field["name"] == "payload")
    payload["type"]["fields"][0]["logicalType"] = "timestamp-micros"
    [event] = read_events(avro_file(schema, [{"c": 0}]), Decoding())
    assert isinstance(event, Envelope)
    assert event.values == {"c": "1970-01-01T00:00:00.000000Z"}


def test_a_negative_scale_is_one_of_oracle() -> None:
    """Oracle's NUMBER(13,-2) counts hundreds, which Avro's libraries refuse."""
    schema = event_schema([("c", DECIMAL | {"precision": 13, "scale": 12})])
    data = avro_file(schema, [{"c": b"\x7f"}]).replace(b'"scale": 12', b'"scale": -2')
    [event] = read_events(data, Decoding())
    assert isinstance(event, Envelope)
    assert event.values == {"c": "12700"}


NO_NUMBERS = ("1_0", "\u0661\u0662", "\uff11", " 1", "1 ", "1\\n", "0x10", "1e", "", "--1")
"""Texts that Python's own parsers of numbers take, and others."""
NUMBERS = ("INT64", "DECIMAL(10,2)", "DECIMAL(38,0)", "FLOAT64", "FLOAT32", "NUMERIC", "NUMBER")
NO_MOMENTS = (
    "20240229",
    "2024-W09-4",
    "2024-02-29x01:02:03",
    "2024-02-29T01",
    "\u0662024-02-29",
    "2024-02-29T",
)

GUESSED: list[tuple[list[str], str, list[Any]]] = [
    # JSON texts of the values of one file, the type that has room for them, the values
    (["true", "null"], "BOOL", [True, None]),
    (["1", "9007199254740993"], "INT64", [1, "9007199254740993"]),
    (["1", "18446744073709551615"], "PG_NUMERIC", ["1", "18446744073709551615"]),
    (["1", "1.50", "1e400"], "PG_NUMERIC", ["1", "1.50", "1e400"]),
    ([f"0.{'1' * 65}"], "PG_NUMERIC", [f"0.{'1' * 65}"]),
    (["NaN"], "FLOAT64", ["NaN"]),
    (['"2024-02-29T00:00:00Z"', '"x"'], "STRING", ["2024-02-29T00:00:00Z", "x"]),
    (['{"a": [1.0]}', "null"], "JSON", ['{"a":[1.0]}', None]),
    (['"x"', "1", "-1.50", "true", '{"a": 1}'], "STRING", ["x", "1", "-1.50", "true", '{"a":1}']),
    (["[1, null]", "[]", "[2.50]"], "JSON", ["[1,null]", "[]", "[2.50]"]),
    (['[{"b": 1, "a": -0, "b": "\\u00e9 "}]'], "JSON", ['[{"b":1,"a":-0,"b":"é "}]']),
    (["[[1]]"], "JSON", ["[[1]]"]),
    (["[1, true]"], "JSON", ["[1,true]"]),
    (["null", "null"], "NULL", [None, None]),
]


@pytest.mark.parametrize(("texts", "lake_type", "expected"), GUESSED)
def test_guessed_types_lose_nothing(texts: list[str], lake_type: str, expected: list[Any]) -> None:
    """Without schema and declaration all rows of a file have one type that has room for them."""
    events = [each for each in from_json(texts) if isinstance(each, Envelope)]
    assert expected == [each.values["c"] for each in events]
    assert [lake_type] * len(texts) == [each.columns[0][1].text for each in events]


@pytest.mark.parametrize(
    ("texts", "declared", "expected"),
    [
        (["1", "1.5", '"2.25"'], "DECIMAL(10,2)", ["1.00", "1.50", "2.25"]),
        (["18446744073709551615"], "DECIMAL(38,0)", ["18446744073709551615"]),
        (['"2023-07-26Z"', '"2023-07-26"', '"2023-07-26T00:00:00Z"'], "DATE", ["2023-07-26"] * 3),
        (['"infinity"', '"-infinity"'], "DATE", ["9999-12-31", "0001-01-01"]),
        (['"2025-11-05T17:14:27.412737+01:00"'], "TIMESTAMP", ["2025-11-05T16:14:27.412737Z"]),
        (['"+294247-01-10T04:00:54.775807Z"'], "TIMESTAMP", ["9999-12-31T23:59:59.999999Z"]),
        (["-3020399000000"], "TIME_INTERVAL", ["-838:59:59"]),
        (['"1:02:03.5"'], "TIME", ["01:02:03.500000"]),
        (["[1, 2]", '{"nestedArray": [], "elementValue": null}'], "ARRAY<FLOAT64>", [[1.0, 2.0], []]),
        (['"a"', "1", "1.50", "null"], "STRING", ["a", "1", "1.50", None]),
        (['"x"', "[1]"], "JSON", ['"x"', "[1]"]),
        (["0", "true", '"0"'], "BOOL", [False, True, False]),
        (["0.1", "7"], "FLOAT32", [0.10000000149011612, 7.0]),
    ],
)
def test_declared_types_of_json(texts: list[str], declared: str, expected: list[Any]) -> None:
    """A declaration reads each value as it is, without a guess in between."""
    assert expected == [
        event.values["c"] for event in from_json(texts, declared) if isinstance(event, Envelope)
    ]


@pytest.mark.parametrize(
    ("text", "declared", "word"),
    [
        ("1.555", "DECIMAL(10,2)", "1.555"),
        ("1e400", "FLOAT64", "beyond a float of 64 bits"),
        ("1e39", "FLOAT32", "beyond a float of 32 bits"),
        ('"soon"', "TIMESTAMP", "'soon' is not a moment"),
        ("5", "TIMESTAMP", "5 is not text"),
        ('"-4712-01-01T00:00:00Z"', "TIMESTAMP", "outside the years 1 to 9999"),
        ("[[1]]", "ARRAY<INT64>", "array of arrays; declare the column as JSON"),
        ('{"a": 1}', "INT64", "is not an integer"),
        ('"!"', "BYTES", "not base64; declare the column as BYTES(hex) or STRING"),
        ('"NaN"', "DECIMAL(10,2)", "NaN"),
        *((f'"{text}"', kind, "is not a number") for text in NO_NUMBERS for kind in NUMBERS),
        ('"2024-02-29T23:30:00-05"', "DATETIME", "has an offset from UTC"),
        ('"2024-02-29T01:00:00+01:00"', "DATE", "has an offset from UTC"),
        ('"01:02:03+05:30"', "TIME", "has an offset from UTC"),
        *((f'"{text}"', "TIMESTAMP", "is not a moment") for text in NO_MOMENTS),
        ('"ab cd"', "BYTES(hex)", "is not a text of hex digit pairs"),
    ],
)
def test_what_does_not_fit_its_declaration_is_faulty(text: str, declared: str, word: str) -> None:
    """The event goes to quarantine with its line, and the reason names column and value."""
    [event] = from_json([text], declared)
    assert isinstance(event, FaultyEvent)
    assert "Column `c`" in event.reason
    assert word in event.reason
    assert f"s.t/{json.loads(event.text)['uuid']}" == event.event_id


@pytest.mark.parametrize("kind", [Kind.TIMESTAMP, Kind.TIMESTAMP_WITH_TIMEZONE, Kind.STRING])
@pytest.mark.parametrize("declared", [Kind.DATETIME, Kind.DATE])
def test_an_offset_is_refused_whatever_type_the_schema_file_gives(kind: Kind, declared: Kind) -> None:
    """A declared wall clock shifts no moment, and takes one in UTC."""
    read = column_reader(FieldType(kind), FieldType(declared), json_reader)
    assert read is not None
    with pytest.raises(ValueError, match="has an offset from UTC"):
        read("2020-01-01T00:00:00+02:00")
    assert read("2020-01-01T00:00:00Z")[:10] == "2020-01-01"


DOCUMENTS = [
    # as JSON writes it, and as the lake has it
    ('{"a": 1,"a": 2}', '{"a":1,"a":2}'),
    ('{"b": 1, "a": 2, "b": 3}', '{"b":1,"a":2,"b":3}'),
    ("-0", "-0"),
    (
        '[-0, -0.0, 1E2, "a b", "\\u00e9\\"", {"x": {"y": 1, "y": 1}}]',
        '[-0,-0.0,1E2,"a b","é\\"",{"x":{"y":1,"y":1}}]',
    ),
    ('"abc"', '"abc"'),
]


@pytest.mark.parametrize(("text", "expected"), DOCUMENTS)
def test_a_document_is_what_it_was(text: str, expected: str) -> None:
    """Members of one name, their order and signs of zeros stay, in every format and type."""
    decoding = Decoding(schemas={"a" * 40: (("c", FieldType(Kind.JSON)),)})
    ways = [
        from_json([text], "JSON"),
        list(read_events(json_line(0, {"c": text}).encode(), decoding)),
        [from_avro({"type": "string", "logicalType": "json"}, text, None)],
        [from_avro("string", text, "JSON")],
        *([from_json([text])] if text[0] in "[{" else []),
    ]
    assert [{"c": expected}] * len(ways) == [
        event.values for way in ways for event in way if isinstance(event, Envelope)
    ]


@pytest.mark.parametrize("text", ["abcdef", "0xabcdef", "\\xabcdef"])
def test_a_declared_spelling_counts_with_a_schema(text: str) -> None:
    """A schema file shows that a column has bytes; their encoding in JSON's texts is declared."""
    declared = declarations({"s.t": {"c": "BYTES(hex)"}})
    decoding_with = Decoding(declared, {"a" * 40: (("c", declared_type("BYTES")),)})
    [event] = read_events(json_line(0, {"c": json.dumps(text)}).encode(), decoding_with)
    assert isinstance(event, Envelope), event
    assert event.values == {"c": "q83v"}


@pytest.mark.parametrize("depth", [400, 800, 5000])
def test_a_value_that_is_nested_deeply_ends_no_file(depth: int) -> None:
    """It is read, or its event goes to quarantine; the other events of the file are read either way."""
    deep, plain = from_json(["[" * depth + "]" * depth, '{"a": 1}'])
    assert isinstance(deep, FaultyEvent if depth > 800 else Envelope)
    assert isinstance(plain, Envelope)
    [stored] = [from_avro({"type": "string", "logicalType": "json"}, "[" * depth + "]" * depth, None)]
    assert isinstance(stored, Envelope)
    assert {"c": "[" * depth + "]" * depth} == stored.values


def test_a_column_beyond_its_schema_is_faulty() -> None:
    """A schema of the `schema_key` that lacks one of the event's columns is not the event's schema."""
    decoding = Decoding(schemas={"a" * 40: (("d", declared_type("INT64")),)})
    [event] = read_events(json_line(0, {"c": "1"}).encode(), decoding)
    assert isinstance(event, FaultyEvent)
    assert "The schema of the event's `schema_key` has no column `c`" in event.reason


@pytest.mark.parametrize(
    "text", ["", "VARCHAR(3)", "DECIMAL", "DECIMAL(3,4)", "ARRAY<ARRAY<INT64>>", "BYTES(utf8)"]
)
def test_a_declaration_that_is_no_type_is_refused(text: str) -> None:
    """The error names the setting, and the types that there are."""
    with pytest.raises(SettingError, match=r"columns\.s\.t\.c"):
        declarations({"s.t": {"c": text}})
