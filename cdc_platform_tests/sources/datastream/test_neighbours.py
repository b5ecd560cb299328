"""Good lines around bad ones of every size and shape: they arrive, with their values in their own columns."""

import gzip
import json
from typing import Any

import pytest

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.datastream.files.file_events import decode_file
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.event_batches import EventBatches
from cdc_platform.sources.sound_rows import MAX_CHARACTERS, MAX_TEXT_CHARACTERS
from cdc_platform_tests.sources.datastream.raw_avro import avro, event, long
from cdc_platform_tests.support.datastream.files import MadeEvent
from cdc_platform_tests.support.reference.raw_rows import raw_rows_of

SETTINGS = DatastreamSettings("x")


def line(key: int, **values: Any) -> bytes:
    """Return the line of an inserted row."""
    return json.dumps(MadeEvent(f"e{key}", "users", "INSERT", key, {"id": key, **values}).to_json()).encode()


def good_keys(data: bytes) -> list[int]:
    """Return the keys of the events of a file that can be used."""
    events = list(decode_file(SETTINGS, data))
    return [json.loads(event.keys)["id"] for event in events if isinstance(event, SourceEvent)]


def wide(key: int, begin: int) -> bytes:
    """Return the line of a row with 3,000 columns."""
    return line(key, **{f"c{number}": 1 for number in range(begin, begin + 3_000)})


def test_rows_with_many_other_columns_spoil_no_row() -> None:
    """Each event has its own columns; those of a whole file may be more than one event may have."""
    assert good_keys(b"\n".join([line(1, v=1), wide(2, 0), wide(3, 3_000), line(4, v=2)])) == [1, 2, 3, 4]


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_name_in_another_case_is_the_fault_of_its_row(place: int) -> None:
    """The column that most rows have keeps its name, in any order of the lines."""
    lines = [line(key, v=key) for key in (1, 2, 3)]
    lines.insert(place, line(9, V=9))
    events = list(decode_file(SETTINGS, b"\n".join(lines)))
    (fault,) = (event for event in events if isinstance(event, FaultyEvent))
    assert "`V` differs in case only from `v`" in fault.reason
    values = [json.loads(event.new_values or "") for event in events if isinstance(event, SourceEvent)]
    assert values == [{"v": 1}, {"v": 2}, {"v": 3}]


@pytest.mark.parametrize(
    "junk", [b"x" * 300_000, b"\n" * 300_000, b" " * 300_000 + b"\n" + b"[" * 300_000], ids=["x", "n", "["]
)
def test_lines_behind_much_else_arrive(junk: bytes) -> None:
    """A file is one of JSON lines wherever its first object begins."""
    assert good_keys(b"\n".join([junk, line(1), line(2)])) == [1, 2]
    assert good_keys(gzip.compress(b"\n") + gzip.compress(b"\n".join([junk, line(1), line(2)]))) == [1, 2]


@pytest.mark.parametrize("size", [2**63, 2**64])
def test_a_block_that_is_larger_than_any_file_is_one_fault(size: int) -> None:
    """What is before it arrives."""
    whole = avro(event(x="int"), b"\2")
    good, bad = decode_file(SETTINGS, whole + b"\2" + long(size) + b"abc")
    assert isinstance(bad, FaultyEvent)
    assert bad.position is None
    assert not isinstance(good, FaultyEvent) or good.position == 0


def test_the_text_and_the_reason_of_a_fault_are_bounded() -> None:
    """A faulty line of many megabytes is kept as its beginning and its digest."""
    bad = b'{"broken":"' + b"a" * 30_000_000
    (fault,) = (
        event for event in decode_file(SETTINGS, b"\n".join([line(1), bad])) if isinstance(event, FaultyEvent)
    )
    (row,) = raw_rows_of(EventBatches(1), [fault])
    assert len(row["event"]["text"]) < MAX_TEXT_CHARACTERS + 200
    reason = FaultyEvent("r" * 3_000_000, "t")
    (row,) = raw_rows_of(EventBatches(1), [reason])
    assert len(row["event"]["fault"]) < MAX_CHARACTERS + 200
