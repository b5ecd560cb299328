"""Events that are decoded together, by column: each gives what it gives alone."""

import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.datastream.events.interpreter import Interpreter
from cdc_platform.sources.datastream.files import avro_files
from cdc_platform.sources.datastream.files.decoding import Decoding
from cdc_platform.sources.datastream.files.file_events import FileDecoder, decode_file
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.settings.policies import BackfillPolicy, KeylessPolicy
from cdc_platform.sources.datastream.values.moments import moment_micros, plain_micros
from cdc_platform.sources.json_codec import write, write_objects
from cdc_platform_tests.sources.datastream.generated_events import SOURCES, scenario, write_avro
from cdc_platform_tests.sources.datastream.odd_fields import ODD, odd_event
from cdc_platform_tests.support.datastream.envelopes import read_events

KEYLESS: Final = {"shop.items": KeylessPolicy.ROW_HASH, "SHOP.ITEMS": KeylessPolicy.APPEND}
SETTINGS: Final = (
    DatastreamSettings("files"),
    DatastreamSettings("files", backfill_policy=BackfillPolicy.BY_SOURCE_TIMESTAMP),
    DatastreamSettings("files", epochs=("2025-11-01T12:26:45Z",), keyless=KEYLESS),
    DatastreamSettings("files", null_means_unchanged={"shop.items": ("note", "v")}),
    DatastreamSettings("files", sequence_columns={"shop.items": "v"}),
)
EVENTS: Final = st.lists(
    st.tuples(
        st.integers(0, 13),
        st.lists(st.tuples(st.integers(0, 40), st.sampled_from(ODD)), max_size=2),
    ),
    min_size=2,
    max_size=12,
)


def each_alone(chosen: DatastreamSettings, data: bytes) -> list[SourceEvent | FaultyEvent]:
    """Return what the events of a file are taken for, each interpreted alone."""
    interpreter = Interpreter(chosen)
    return [
        event if isinstance(event, FaultyEvent) else interpreter.interpret(event.as_run())
        for event in read_events(data, Decoding())
    ]


@given(st.sampled_from(SETTINGS), st.lists(st.sampled_from(SOURCES), min_size=1, max_size=2), EVENTS)
def test_lines_together_are_what_each_is_alone(
    chosen: DatastreamSettings, sources: Sequence[str], events: Sequence[tuple[int, Any]]
) -> None:
    """Odd events among the others change no result, nor its place among the events of the file."""
    made = [odd_event(sources[place % len(sources)], *event) for place, event in enumerate(events)]
    data = "\n".join(map(json.dumps, made)).encode()
    actual = list(decode_file(chosen, data))
    assert list(range(len(events))) == [event.position for event in actual]
    assert each_alone(chosen, data) == actual


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    st.sampled_from(SETTINGS), st.sampled_from(SOURCES), st.lists(st.integers(0, 13), min_size=1), st.data()
)
def test_records_together_are_what_each_is_alone(
    tmp_path: Path, chosen: DatastreamSettings, source: str, numbers: Sequence[int], data: st.DataObject
) -> None:
    """Records of Avro are the same in runs of any length, and so is what comes before damage."""
    events = [scenario(source)[number] for number in numbers]
    write_avro(tmp_path / "events.avro", events)
    octets = (tmp_path / "events.avro").read_bytes()
    octets = octets[: data.draw(st.integers(len(octets) // 2, len(octets)))]
    expected = list(decode_file(chosen, octets))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_files, "_MAX_RECORDS", 1)
        assert expected == list(decode_file(chosen, octets))
    assert each_alone(chosen, octets) == expected


def test_a_file_of_one_table_and_operation_is_one_run() -> None:
    """A run has all events of a block that differ in their values and in the columns of their rows only."""
    event = odd_event("mysql", 4, ())
    made = [
        {**event, "uuid": f"u{number}", "payload": {**event["payload"], f"c{number % 7}": number}}
        for number in range(50)
    ]
    data = "\n".join(map(json.dumps, made)).encode()
    runs = FileDecoder(SETTINGS[0]).runs(data)
    assert [len(run) for run in runs if not isinstance(run, FaultyEvent)] == [50]
    assert list(read_events(data, Decoding())) == list(read_events(BytesIO(data), Decoding()))


def test_deletes_with_keys_in_their_metadata_are_one_run() -> None:
    """Deletes without rows are decoded together, and each has the key of its own metadata."""
    event, count = odd_event("mysql", 6, ()), 50
    made = [
        {
            **event,
            "uuid": f"u{number}",
            "source_metadata": {**event["source_metadata"], "primary_keys": {"id": number}},
            "payload": {"id": None} if number % 2 else {},
        }
        for number in range(count)
    ]
    data = "\n".join(map(json.dumps, made)).encode()
    runs = FileDecoder(SETTINGS[0]).runs(data)
    keys = [set(run.keys) for run in runs if not isinstance(run, FaultyEvent)]
    assert [{f'{{"id":{number}}}' for number in range(count)}] == keys
    assert each_alone(SETTINGS[0], data) == list(decode_file(SETTINGS[0], data))


# The columns of a row that is no text do not count.
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["v", "note", "_id", "w"]),
            st.sampled_from([value for value in ODD if value != "\ud800"]),
        ),
        min_size=2,
    )
)
def test_a_column_that_a_row_lacks_is_null_in_it(rows: Sequence[dict[str, Any]]) -> None:
    """Rows with some of the columns give what they give with nulls in the others."""
    event, names = odd_event("mysql", 4, ()), dict.fromkeys(name for row in rows for name in row)

    def decoded(rows: Sequence[dict[str, Any]]) -> list[object]:
        made = [
            {**event, "uuid": f"u{number}", "payload": {"id": number, **row}}
            for number, row in enumerate(rows)
        ]
        results = decode_file(SETTINGS[0], "\n".join(map(json.dumps, made)).encode())
        return [each if isinstance(each, SourceEvent) else (each.reason, each.position) for each in results]

    assert decoded([{**row, **{name: row.get(name) for name in names}} for row in rows]) == decoded(rows)


def test_tables_whose_names_are_equal_values_are_different_tables() -> None:
    """An event whose table is named 0 and one whose table is named False are events of two tables."""
    event, names = odd_event("mysql", 4, ()), (0, False, "0", 1, True)
    made = [{**event, "source_metadata": {**event["source_metadata"], "table": name}} for name in names]
    expected = [each_alone(SETTINGS[0], json.dumps(single).encode()) for single in made]
    actual = decode_file(DatastreamSettings("others"), "\n".join(map(json.dumps, made)).encode())
    assert [single.table for (single,) in expected] == [single.table for single in actual]


@given(
    st.lists(st.dictionaries(st.sampled_from(["a", 'b"', "c", "\u00e9"]), st.sampled_from(ODD), min_size=4))
)
def test_objects_are_written_together_as_each_alone(rows: Sequence[dict[str, Any]]) -> None:
    """Names that need escapes and texts that are not Unicode are written, too."""
    names = ("a", 'b"', "c", "\u00e9")
    columns = [[row[name] for row in rows] for name in names]
    assert [write({name: row[name] for name in names}) for row in rows] == write_objects(
        names, columns, len(rows)
    )


@pytest.mark.parametrize(
    "text",
    [
        *("2024-02-29T23:59:59.999999Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"),
        *("2024-01-31 10:00:00.1Z", "2023-02-29T00:00:00Z", "2024-01-31T24:00:00Z", "0000-01-01T00:00:00Z"),
        *("2024-01-31T23:59:60Z", "2024-01-31T10:60:00Z", "2024-01-31T10:00:00.1234567Z", "2024-01-31"),
        *("2024-01-31T10:00:00", "2024-01-31T10:00:00+02:00", "2024-01-31T10:00:00Z\n2024-01-31T10:00:00Z"),
    ],
)
def test_moments_that_are_read_together_are_what_each_is_alone(text: str) -> None:
    """Notations that Arrow could read in another way are not read together."""
    together = plain_micros([text, "2024-01-31T10:00:00Z"])
    assert together is None or moment_micros(text) == together[0]
