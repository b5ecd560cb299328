"""Every sample reaches the end state of its source, in any order and with any repetition of its events."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.datastream.files.file_events import decode_file
from cdc_platform_tests.sources.datastream.generated_events import (
    OUTCOME,
    SOURCES,
    Event,
    scenario,
    write_avro,
    write_json_lines,
)
from cdc_platform_tests.sources.datastream.reference_sink import ReferenceSink, Row
from cdc_platform_tests.strategies import deliveries
from cdc_platform_tests.support.datastream.samples import (
    CASES,
    SAMPLES,
    SETTINGS,
    Events,
    Sample,
    interpreted,
)


def sunk(events: Events, batches: Sequence[Sequence[int]]) -> ReferenceSink:
    """Return a sink that has taken the events in batches of their numbers."""
    sink = ReferenceSink()
    for batch in batches:
        sink.take(events[number] for number in batch)
    return sink


def column_of(rows: dict[str, Row], column: str) -> dict[str, Any]:
    """Return one column of rows, by key."""
    return {key: row[column] for key, row in rows.items()}


@pytest.mark.parametrize("sample", CASES.values(), ids=CASES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_every_sample_reaches_its_end_state(sample: Sample, data: st.DataObject) -> None:
    """Any order of events, any batches and any repetition give the rows that the source had at the end."""
    events = interpreted(sample)
    sink = sunk(events, data.draw(deliveries(len(events))))
    assert sample.expected == column_of(sink.rows(sample.table), sample.column)
    assert {sample.table} == sink.tables


def test_every_sample_is_in_a_case() -> None:
    """No file lies among the samples without an end state that is known."""
    folders = [path for path in SAMPLES.iterdir() if path.is_dir()]
    files = {path.relative_to(SAMPLES).as_posix() for folder in folders for path in folder.rglob("*.*")}
    assert files == {name for sample in CASES.values() for name in sample.files}


def test_the_event_without_a_place_is_the_only_fault() -> None:
    """All events of the samples can be used but one, which has no log sequence number."""
    faults = [
        event for sample in CASES.values() for event in interpreted(sample) if isinstance(event, FaultyEvent)
    ]
    expected = [("dbo.ORDERS", "mydb.dbo.ORDERS/test-uuid-ri")]
    assert expected == [(fault.table, fault.event_id) for fault in faults]
    assert "`lsn` is missing" in faults[0].reason


@pytest.mark.parametrize("write", [write_avro, write_json_lines])
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_has_the_same_changes(
    tmp_path: Path, source: str, write: Callable[[Path, list[Event]], None]
) -> None:
    """Files of generated events of each source, in either format, end at the same rows in any order."""
    write(tmp_path / "events", scenario(source))
    events = list(decode_file(SETTINGS, (tmp_path / "events").read_bytes()))
    read: Callable[[Row], Row] = _document if source == "mongodb" else dict
    expected = {_key(source, number): row for number, row in OUTCOME.items()}

    @settings(max_examples=15, deadline=None)
    @given(deliveries(len(events)))
    def check(batches: list[list[int]]) -> None:
        sink = sunk(events, batches)
        assert not sink.faults
        (table,) = sink.tables
        assert expected == {key: read(row) for key, row in sink.rows(table).items()}

    check()


@pytest.mark.parametrize("source", SOURCES)
def test_both_formats_mean_the_same(tmp_path: Path, source: str) -> None:
    """The events of a scenario mean the same in Avro and in JSON, to the last character."""
    event_lists = []
    for write in (write_avro, write_json_lines):
        write(tmp_path / "events", scenario(source))
        actual = decode_file(SETTINGS, (tmp_path / "events").read_bytes())
        event_lists.append([event for event in actual if isinstance(event, SourceEvent)])
    avro, lines = event_lists
    assert len(scenario(source)) == len(avro)
    # Lines without a schema do not state the type of a column that is NULL in all of them.
    assert [event._replace(column_types="") for event in avro] == [
        event._replace(column_types="") for event in lines
    ]


def _key(source: str, number: int) -> str:
    return f'{{"_id":"{number}"}}' if source == "mongodb" else f'{{"id":{number}}}'


def _document(row: Row) -> Row:
    document: Row = json.loads(row["data"])
    return document
