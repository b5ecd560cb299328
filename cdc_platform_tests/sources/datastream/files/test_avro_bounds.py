"""Files of few bytes that stand for endless depth, digits, values or text: each is one fault."""

import bz2
import lzma
import zlib
from dataclasses import replace
from typing import Any, Final

import pytest

from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.datastream.events.envelope import Envelope
from cdc_platform.sources.datastream.files.decoding import Decoding
from cdc_platform.sources.datastream.files.files import read_events
from cdc_platform.sources.datastream.settings.bounds import Bounds
from cdc_platform_tests.sources.datastream.raw_avro import avro, chain, event, long, record, text
from cdc_platform_tests.unified_types import UNIFIED, avro_file, event_schema

ARRAY: Final = UNIFIED["ARRAY"].schema("a")
NULLS: Final = record("r0", x="null", y="null")
DECIMAL: Final = {"type": "bytes", "logicalType": "decimal", "precision": 9}
BOUNDS: Final = Bounds(most_depth=40, most_digits=100, most_block_bytes=2**20)


def nested(depth: int, schema: Any = "int") -> Any:
    """Return the schema of arrays in each other."""
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def deflated(data: bytes) -> bytes:
    """Return bytes as Avro's codec `deflate` has them."""
    return zlib.compress(data, 9, -zlib.MAX_WBITS)


BOMBS: Final = {
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
    "a precision that is no number": avro(
        event(x={"type": "bytes", "logicalType": "decimal", "precision": "9"}), text(b"\1")
    ),
    "deflate": avro(event(x="string"), deflated(text(b"a" * 2**24)), codec="deflate"),
    "bzip2": avro(event(x="string"), bz2.compress(text(b"a" * 2**24)), codec="bzip2"),
    "xz": avro(event(x="string"), lzma.compress(text(b"a" * 2**24)), codec="xz"),
}


def read(data: bytes, bounds: Bounds = BOUNDS) -> tuple[list[Envelope], list[FaultyEvent]]:
    """Return the events of a file, and those that are faulty."""
    found = list(read_events(data, Decoding(bounds=bounds)))
    good = [each for each in found if isinstance(each, Envelope)]
    return good, [each for each in found if isinstance(each, FaultyEvent)]


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_a_file_that_does_not_end_is_one_fault(data: bytes) -> None:
    """Whatever a schema or a block promises, reading ends at once, with one reason of bounded length."""
    good, (fault,) = read(data)
    assert good == []
    assert fault.position is None
    assert len(fault.reason) < 2000


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
    """What is beyond the bounds of one pipeline is read by another."""
    digits = avro(event(x={"type": "bytes", "logicalType": "decimal", "precision": 900}), text(b"\1"))
    large = avro(event(x="string"), deflated(text("a" * 2**21)), codec="deflate")
    deep = avro(event(x=nested(12)), b"\0")
    for data, setting in ((digits, "most_digits"), (large, "most_block_bytes"), (deep, "most_depth")):
        assert setting in read(data, replace(BOUNDS, most_depth=16))[1][0].reason
        assert (read(data, Bounds())[1], len(read(data, Bounds())[0])) == ([], 1)
