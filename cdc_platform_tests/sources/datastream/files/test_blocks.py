"""Files of JSON lines give the same events, for any size of blocks and either parser."""

import copy
import gzip
import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources import text_files
from cdc_platform.sources.datastream.files import blocks, lines
from cdc_platform.sources.datastream.files.file_events import FileDecoder, decode_file
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.text_files import FileDamaged
from cdc_platform_tests.sources.datastream.generated_events import SOURCES, json_event, scenario
from cdc_platform_tests.sources.datastream.odd_fields import ODD, odd_event

SETTINGS: Final = DatastreamSettings("files")
BAD: Final = (
    *('{"uuid": "u", ', "[]", '{"payload": 3}', '{"x": "\\ud800"}'),
    *('{"uuid": 1.5}', '{"sort_keys": [1.5]}', '{"read_timestamp": "never"}'),
)


def decoded(text: str) -> list[SourceEvent | FaultyEvent]:
    """Return the content of a file."""
    return list(decode_file(SETTINGS, text.encode("utf-8", "surrogatepass")))


def mixed_lines() -> list[str]:
    """Return lines of all sources, some of them bad; each has its own column, the last one other types."""
    events = [json_event(copy.deepcopy(event)) for source in SOURCES for event in scenario(source)]
    for number, event in enumerate(events):
        event["payload"][f"only_{number}"] = number
    events[-1]["payload"] = {"_id": 1, "late": [1.5]}
    events.append({**events[5], "payload": {"id": 1, "v": "a text", "late": 2**60}})
    good = [json.dumps(event) for event in events]
    return [line for pair in zip(good, BAD * len(good), strict=False) for line in pair]


@pytest.mark.parametrize("chunk_bytes", [64, 1_000, 10_000])
@pytest.mark.parametrize("ahead_bytes", [0, 5_000, 1 << 24])
@pytest.mark.parametrize("form", ["plain", "gzip", "cut gzip"])
def test_blocks_do_not_show(
    monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, ahead_bytes: int, form: str
) -> None:
    """Types of the last line apply to the first one, also where a file exceeds the memory."""
    data = "\n".join(mixed_lines()).encode()
    if form != "plain":
        data = gzip.compress(data, 1, mtime=0)
    data = data[: len(data) * 2 // 3] if form == "cut gzip" else data
    expected = list(decode_file(SETTINGS, data))
    for module in (lines, text_files):
        monkeypatch.setattr(module, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(blocks, "MAX_AHEAD_BYTES", ahead_bytes)
    assert len(list(FileDecoder(SETTINGS).runs(data))) > len(data) // max(chunk_bytes, 10_000)
    assert expected == list(decode_file(SETTINGS, data))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"payload": 3, "object": 3, "source_metadata": 3}', "`source_metadata` is not an object"),
        ('{"payload": 3, "object": 3, "uuid": 3}', "`object` is not text"),
        ('{"stream_name": 3, "sort_keys": 3, "source_timestamp": "never"}', "`source_timestamp`: "),
        ('{"sort_keys": 3, "stream_name": 3}', "`stream_name` is not text"),
    ],
)
def test_of_several_faults_one_is_reported(line: str, reason: str) -> None:
    """It is the same one wherever the fields stand in the line."""
    (event,) = decoded(line)
    assert isinstance(event, FaultyEvent)
    assert event.reason.startswith(reason)


@given(
    st.sampled_from(SOURCES),
    st.integers(0, 13),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(ODD)), max_size=3),
)
def test_a_line_is_taken_the_same_by_either_way(
    source: str, number: int, changes: Sequence[tuple[int, Any]]
) -> None:
    """A field that no version knows has lines judged with more care, to the same end."""
    events = [odd_event(source, number, changes), odd_event(source, number, ())]
    usual = decoded("\n".join(map(json.dumps, events)))
    careful = decoded("\n".join(json.dumps({**event, "unheard_of": 1}) for event in events))
    assert [without_text(event) for event in usual] == [without_text(event) for event in careful]


def without_text(event: SourceEvent | FaultyEvent) -> Any:
    """Return an event without the text of its line."""
    if isinstance(event, SourceEvent):
        return event
    return event.reason, event.position, event.table, event.event_id, event.metadata, event.source_micros


def test_one_bad_line_changes_no_other() -> None:
    """Lines around a bad one are what they are without it."""
    good = [json.dumps(json_event(event)) for event in scenario("oracle")]
    with_bad = decoded("\n".join([*good[:3], BAD[0], *good[3:]]))
    assert decoded("\n".join(good))[:3] == with_bad[:3]
    assert isinstance(with_bad[3], FaultyEvent)
    assert len(good) + 1 == len(with_bad)


def test_a_line_of_too_many_values_is_one_fault() -> None:
    """It is refused before its values take memory; what texts hold does not count, and the next arrives."""
    settings = DatastreamSettings("files", max_values=100)
    wordy, many = (json_event(copy.deepcopy(event)) for event in scenario("oracle")[:2])
    wordy["payload"]["note"] = '[{,"\\' * 10_000
    many["payload"]["numbers"] = [[]] * 101
    text = "\n".join(map(json.dumps, (many, wordy)))
    refused, taken = decode_file(settings, text.encode())
    assert isinstance(refused, FaultyEvent)
    assert "more than 100 values; see the setting `max_values`" in refused.reason
    assert isinstance(taken, SourceEvent)


def test_members_of_a_gzip_are_gathered() -> None:
    """A gzip of a thousand small members is few blocks, and damage at its end takes none of them away."""
    members = b"".join(gzip.compress(b'{"uuid": "u"}\n') for _ in range(1_000))
    blocks = list(lines.read_blocks(BytesIO(members)))
    assert [len(block) for block in blocks] == [1_000]
    damaged = lines.read_blocks(BytesIO(members[:-5]))
    assert len(next(damaged)) == 1_000
    with pytest.raises(FileDamaged):
        next(damaged)


def test_tables_may_take_turns() -> None:
    """Events of the same columns are of the table that each of them names."""
    events = [json_event(copy.deepcopy(event)) for event in scenario("mysql")]
    names = [f"items_{number % 2}" for number in range(len(events))]
    for event, name in zip(events, names, strict=True):
        event["source_metadata"]["table"] = name
    actual = decoded("\n".join(map(json.dumps, events)))
    assert [f"shop.{name}" for name in names] == [event.table for event in actual]
