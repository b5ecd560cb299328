"""Files of few bytes that stand for endless depth, digits, values or text: each is one fault."""

import bz2
import lzma
from dataclasses import replace
from typing import Any, Final

import pytest

from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.datastream.files.decoding import Decoding
from cdc_platform.sources.datastream.settings.bounds import Bounds
from cdc_platform_tests.sources.datastream.raw_avro import (
    avro,
    chain,
    deflated,
    event,
    in_namespace,
    long,
    record,
    text,
)
from cdc_platform_tests.support.datastream.envelopes import Envelope, read_events
from cdc_platform_tests.unified_types import UNIFIED, avro_file, event_schema

ARRAY: Final = UNIFIED["ARRAY"].schema("a")
NULLS: Final = record("r0", x="null", y="null")
DECIMAL: Final = {"type": "bytes", "logicalType": "decimal", "precision": 9}
BOUNDS: Final = Bounds(max_depth=40, max_digits=100, max_values=100_000, max_block_bytes=2**20)


def nested(depth: int, schema: Any = "int") -> Any:
    """Return the schema of arrays in each other."""
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


HIDING: Final = ["null", in_namespace("n2", record("A", q="long"))]
"""A type in another namespace that has the simple name of one that is a bomb."""
RECURSIVE: Final = {"type": "record", "name": "r", "fields": [{"name": "r", "type": ["null", "r"]}]}
BOMBS: Final = {
    "a record in itself, behind one of its name": avro(
        event(x=in_namespace("n1", record("A", b=HIDING, r=["null", "n1.A"]))), b"\0\x02" * 20_000
    ),
    "the same by its short name": avro(
        event(x=in_namespace("n1", record("A", b=HIDING, r=["null", "A"]))), b"\0\x02" * 20_000
    ),
    "the same by a dotted name": avro(
        event(x=record("n1.A", b=["null", record("n2.A", q="long")], r=["null", "A"])), b"\0\x02" * 20_000
    ),
    "the same by a parent's namespace": avro(
        event(x=in_namespace("n1", record("P", a=record("A", b=HIDING, r=["null", "A"])))), b"\0\x02" * 20_000
    ),
    "empty items, behind a type of their name": avro(
        event(a=in_namespace("n1", record("A", q="null")), b=HIDING, x={"type": "array", "items": "n1.A"}),
        b"\0" + long(2**24),
    ),
    "a schema that says it has been parsed": avro(
        {**event(x="r"), "__fastavro_parsed": True, "__named_schemas": {"r": RECURSIVE}}, b"\x02" * 20_000
    ),
    "an array of long symbols": avro(
        event(x={"type": "array", "items": {"type": "enum", "name": "e", "symbols": ["s" * 100_000]}}),
        long(20_000) + b"\0" * 20_000 + b"\0",
    ),
    "an array of records with a long name": avro(
        event(x={"type": "array", "items": record("r1", **{"n" * 100_000: "boolean"})}),
        long(20_000) + b"\1" * 20_000 + b"\0",
    ),
    "an array of many booleans": avro(
        event(x={"type": "array", "items": "boolean"}),
        deflated(long(2**19) + b"\1" * 2**19 + b"\0"),
        codec="deflate",
    ),
    "a map of many booleans": avro(
        event(x={"type": "map", "values": "boolean"}), long(2**17) + (text("k") + b"\1") * 2**17 + b"\0"
    ),
    "an array of records that are almost empty": avro(
        event(x={"type": "array", "items": record("r", b="boolean", **dict.fromkeys("cdefghij", "null"))}),
        long(20_000) + b"\1" * 20_000 + b"\0",
    ),
    "an array of records with many nulls": avro(
        event(x={"type": "array", "items": record("r", b="boolean", **{f"n{n}": "null" for n in range(20)})}),
        long(100) + b"\1" * 100 + b"\0",
    ),
    "a record in itself": avro(event(x=record("r", r=["null", "r"])), b"\x02" * 20_000),
    "an array in itself": avro(event(x=record("r", r={"type": "array", "items": "r"})), b"\x02" * 20_000),
    "arrays in arrays": avro(event(x=["null", ARRAY]), b"\x02" + b"\x02\x02" * 100_000),
    "a deep schema": avro(event(x=nested(300))),
    "a schema that is too deep to parse": avro('{"type":' * 100_000),
    "a deep schema by names": avro(event(**{f"f{n}": kind for n, kind in enumerate(chain(5_000))})),
    "an enum": avro({"type": "enum", "name": "e", "symbols": ["a"], "fields": []}, b"\0" * 9),
    "a text": avro('"string"', text("a")),
    "records without fields": avro(record("event"), b"", 2**40),
    "records of nulls": avro(event(x="null", y="null"), b"", 2**40),
    "an array of nulls": avro(event(x={"type": "array", "items": "null"}), long(2**34)),
    "an array of empty records": avro(
        event(x={"type": "array", "items": record("r", x="null")}), long(2**34)
    ),
    "an array of fixed nothing": avro(
        event(x={"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}), long(2**34)
    ),
    "doubling": avro(
        event(
            a=record("r0", x="null", y="null"),
            **{f"f{n}": record(f"r{n}", x=f"r{n - 1}", y=f"r{n - 1}") for n in range(1, 60)},
        )
    ),
    "an array of more items than bytes": avro(event(x={"type": "array", "items": "int"}), long(2**40)),
    "a text of more characters than bytes": avro(event(x="string"), long(2**40)),
    "a large scale": avro(
        event(x={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": -(10**9)}), text(b"\1")
    ),
    "a large precision": avro(
        event(x={"type": "bytes", "logicalType": "decimal", "precision": 10**9}), text(b"\1")
    ),
    "a precision that is not a number": avro(
        event(x={"type": "bytes", "logicalType": "decimal", "precision": "9"}), text(b"\1")
    ),
}
CODECS: Final = {"deflate": deflated, "bzip2": bz2.compress, "xz": lzma.compress}


def read(data: bytes, bounds: Bounds = BOUNDS) -> tuple[list[Envelope], list[FaultyEvent]]:
    """Return the events of a file, and those that are faulty."""
    events = list(read_events(data, Decoding(bounds=bounds)))
    good = [each for each in events if isinstance(each, Envelope)]
    return good, [each for each in events if isinstance(each, FaultyEvent)]


def assert_is_one_fault(data: bytes) -> None:
    """Read a file, and ensure that it has no event, and one reason of bounded length."""
    good, (fault,) = read(data)
    assert good == []
    assert fault.position is None
    assert len(fault.reason) < 2000


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_a_file_that_does_not_end_is_one_fault(data: bytes) -> None:
    """For any schema and any block, reading ends at once, with one reason of bounded length."""
    assert_is_one_fault(data)


@pytest.mark.parametrize("codec", CODECS)
def test_a_block_that_unpacks_to_much_text_is_one_fault(codec: str) -> None:
    """A text of 16 MiB that takes some kilobytes in the file is not unpacked beyond the bound."""
    packed = CODECS[codec](text(b"a" * 2**24))
    assert_is_one_fault(avro(event(x="string"), packed, codec=codec))


def test_arrays_are_read_as_deep_as_the_bound_says() -> None:
    """A value within the bound is as it was written, and a deeper one ends the file with a fault."""

    def value(depth: int) -> Any:
        element: Any = {"nestedArray": None, "elementValue": 1}
        for _ in range(depth):
            element = {"nestedArray": [element], "elementValue": None}
        return element

    data = avro_file(event_schema([("a", ARRAY)]), [{"a": value(depth)} for depth in (1, 40, 41, 1)])
    plain, deep, rest = list(read_events(data, Decoding(bounds=BOUNDS)))
    assert isinstance(plain, Envelope)
    assert plain.values["a"] == [1]
    assert isinstance(deep, FaultyEvent)
    assert "array of arrays" in deep.reason
    assert isinstance(rest, FaultyEvent)
    assert "damaged" in rest.reason


def test_a_setting_allows_more() -> None:
    """A file beyond the bounds of one pipeline is read by another with higher ones."""
    digits = avro(event(x={"type": "bytes", "logicalType": "decimal", "precision": 900}), text(b"\1"))
    large = avro(event(x="string"), deflated(text("a" * 2**21)), codec="deflate")
    deep = avro(event(x=nested(12)), b"\0")
    many = avro(event(x={"type": "array", "items": "int"}), long(2**17) + b"\0" * 2**17 + b"\0")
    for data, setting in (
        (digits, "max_digits"),
        (large, "max_block_bytes"),
        (deep, "max_depth"),
        (many, "max_values"),
    ):
        assert setting in read(data, replace(BOUNDS, max_depth=16))[1][0].reason
        assert (read(data, Bounds())[1], len(read(data, Bounds())[0])) == ([], 1)


def test_tables_of_many_columns_that_may_be_null_are_read() -> None:
    """The null of a union takes a byte, unlike a bare one, so that any number of columns may be NULL."""
    names = [f"c{number}" for number in range(1_600)]
    schema = event(**{name: ["null", "string"] for name in names})
    good, faults = read(avro(schema, b"\0" * len(names) * 3, 3))
    assert ([envelope.values for envelope in good], faults) == ([dict.fromkeys(names)] * 3, [])


def test_values_are_counted_by_event() -> None:
    """Events with the maximum of values are read, for any number per block; numbers count once."""
    array = long(900) + long(2**60) * 900 + b"\0"
    data = avro(event(x={"type": "array", "items": "long"}), array * 9, 9)
    good, faults = read(data, Bounds(max_values=1_000))
    assert ([len(envelope.values["x"]) for envelope in good], faults) == ([900] * 9, [])
    assert "max_values" in read(data, Bounds(max_values=900))[1][0].reason


def test_a_text_that_is_not_unicode_is_one_fault() -> None:
    """The events around it arrive, in any of its texts; its octets are in the fault."""
    schema = event(x="string", y={"type": "array", "items": "string"})
    schema["fields"].append({"name": "uuid", "type": "string"})

    def stored(x: bytes, y: bytes, uuid: bytes) -> bytes:
        return text(x) + long(1) + text(y) + b"\0" + text(uuid)

    bad = b"a\xff\xed\xa0\x80"
    events = [(b"a", b"b", b"c"), (bad, b"b", b"c"), (b"a", bad, b"c"), (b"a", b"b", bad), (b"d", b"e", b"f")]
    good, faults = read(avro(schema, b"".join(stored(*each) for each in events), len(events)))
    assert [envelope.values["x"] for envelope in good] == ["a", "d"]
    assert [fault.position for fault in faults] == [1, 2, 3]
    for fault in faults:
        assert "not UTF-8" in fault.reason
        assert "a\\\\xff\\\\xed" in fault.text
