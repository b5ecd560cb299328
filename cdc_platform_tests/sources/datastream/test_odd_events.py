"""Events whose fields say what no documentation does: each is a change or a fault, and no end of a cycle."""

import copy
import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.datastream.files.file_events import decode_file, decode_text
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.event_batches import EventBatches
from cdc_platform_tests.sources.datastream.generated_events import SOURCES, json_event, scenario
from cdc_platform_tests.sources.datastream.odd_fields import ODD, odd_event
from cdc_platform_tests.support.datastream.files import MadeEvent

SETTINGS: Final = DatastreamSettings("files")


def judged(event: dict[str, Any]) -> SourceEvent | FaultyEvent:
    """Return what an event is taken for, after a way that ends in a batch of raw records."""
    (actual,) = decode_file(SETTINGS, json.dumps(event).encode())
    batches = EventBatches(1)
    batches.add(actual, ReadWindow("a", 0, 1), SourceFile("f", "a", 1, 1))
    assert sum(batch.num_rows for batch in batches.take()) == 1
    if isinstance(actual, FaultyEvent):
        assert len(list(decode_text(SETTINGS, actual.text, actual.position))) == 1
    return actual


@given(
    st.sampled_from(SOURCES),
    st.integers(0, 13),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(ODD)), min_size=1, max_size=3),
)
def test_whatever_a_field_says_it_breaks_nothing(
    source: str, number: int, changes: Sequence[tuple[int, Any]]
) -> None:
    """A cycle that one event could end would be ended by it again and again."""
    judged(odd_event(source, number, changes))


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("source_timestamp", "+12000-01-01T00:00:00Z", "outside the years 1 to 9999"),
        ("source_timestamp", 10**17, "outside the years 1 to 9999"),
        ("is_deleted", 1, "`is_deleted` is neither true nor false, but says: 1"),
        ("is_deleted", "yes", "`is_deleted` is neither true nor false, but says: 'yes'"),
        ("primary_keys", 1, "`primary_keys` does not name columns, but says: 1"),
        ("primary_keys", "id", "`primary_keys` does not name columns, but says: 'id'"),
        ("primary_keys", [None], "`primary_keys` does not name columns, but says: [None]"),
    ],
)
def test_what_cannot_be_used_is_reported(field: str, value: object, reason: str) -> None:
    """The reason names the field."""
    event = json_event(copy.deepcopy(scenario("mysql")[5]))
    (event if field in event else event["source_metadata"])[field] = value
    actual = judged(event)
    assert isinstance(actual, FaultyEvent)
    assert reason in actual.reason


def test_faults_of_a_table_have_one_name() -> None:
    """A line that cannot be decoded names its table as one that cannot be interpreted: as the lake does."""
    good = MadeEvent("a", "users", "INSERT", 1, {"id": 1}).to_json()
    undecoded = {**good, "uuid": "b", "read_timestamp": "never"}
    misunderstood = {
        **good,
        "uuid": "c",
        "source_metadata": {**good["source_metadata"], "change_type": "NEW"},
    }
    lines = "\n".join(json.dumps(event) for event in (good, undecoded, misunderstood)).encode()
    events = list(decode_file(DatastreamSettings("x", table_name="t_{table}"), lines))
    assert [isinstance(event, FaultyEvent) for event in events] == [False, True, True]
    assert {event.table for event in events} == {"t_users"}
