"""Generated events: the files they are written to hold them, and quarantine keeps them whole."""

import gzip
import json
from pathlib import Path

import fastavro
import pytest

from cdc_platform.sources.datastream.events.envelope import from_text, to_text
from cdc_platform_tests.sources.datastream.generated_events import (
    SOURCES,
    scenario,
    to_run,
    write_avro,
    write_json_lines,
)
from cdc_platform_tests.support.datastream.envelopes import Envelope


@pytest.mark.parametrize("source", SOURCES)
def test_both_formats_have_the_same_events(tmp_path: Path, source: str) -> None:
    """Avro and JSON files of a scenario have its events, and each format the types that it has."""
    events = scenario(source)
    write_avro(tmp_path / "events.avro", events)
    write_json_lines(tmp_path / "events.jsonl.gz", events)
    with (tmp_path / "events.avro").open("rb") as file:
        records = [record for record in fastavro.reader(file) if isinstance(record, dict)]
    lines = gzip.decompress((tmp_path / "events.jsonl.gz").read_bytes()).decode().splitlines()
    for event, record, line in zip(events, records, map(json.loads, lines), strict=True):
        assert event["payload"] == line["payload"]
        assert event["source_timestamp"] == round(record["source_timestamp"].timestamp() * 1000)
        for field in ("uuid", "sort_keys", "source_metadata"):
            assert event[field] == record[field] == line[field]


@pytest.mark.parametrize("source", SOURCES)
def test_texts_of_quarantine_hold_whole_events(source: str) -> None:
    """An event comes back from its text as it was."""
    runs = [to_run(event, position) for position, event in enumerate(scenario(source))]
    assert [Envelope.of(run) for run in runs] == [Envelope.of(from_text(to_text(run))) for run in runs]


@pytest.mark.parametrize("text", ["{}", "[]", '{"uuid": "u"}', "half of"])
def test_other_texts_are_no_events(text: str) -> None:
    """A text that is not an envelope is refused."""
    with pytest.raises(ValueError, match=r"Not the text of an envelope|Expecting value"):
        from_text(text)
