"""Content of a window of events, which shows the changes of the log that some of them may equal."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc_platform.model.rows.keyless import UNNUMBERED_PREFIX
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.model.stream.records import ModType
from cdc_platform.model.stream.source_capabilities import CHANGE_STREAM
from cdc_platform.pipeline.reading.window_content import (
    ValueFacts,
    WindowContent,
    content_from_json,
    content_of,
    content_to_json,
)
from cdc_platform.sources.event_batches import EventBatches
from cdc_platform.spark.log.event_order import order_events
from cdc_platform.spark.log.repeats import without_repeated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW: Final = 1_800_000_000_000_000
Event = SourceEvent | FaultyEvent
FILE: Final = SourceFile("a/file.jsonl", "a", 10, NOW)
EVENTS: Final = replace(
    CHANGE_STREAM,
    delivers_events=True,
    keeps_transactions=False,
    comes_in_order=False,
    repeats_within_s=60.0,
)


def event(number: int, kind: ModType = ModType.UPDATE, micros: int | None = NOW) -> SourceEvent:
    """Return a change with its own identity."""
    return SourceEvent("t", kind, "1", f"event {number}", "", micros, "[]", f'{{"id":"{number}"}}', "{}")


def fault(number: int, micros: int | None = None) -> FaultyEvent:
    """Return a change that cannot be used, and has the identity that it would have as a sound one."""
    return FaultyEvent("broken", "text", 0, table="t", event_id=f"event {number}", source_micros=micros)


def batch_of(*events: Event) -> pa.RecordBatch:
    """Return the raw records of events."""
    batches = EventBatches(1)
    for item in events:
        batches.add(item, ReadWindow("", 0, NOW), FILE, "", 1)
    (batch,) = batches.take()
    return batch


@pytest.mark.parametrize(
    ("events", "since_micros", "lacks_moments"),
    [
        ([event(1), event(2, micros=NOW - 5)], NOW - 5, False),
        ([event(1, micros=None)], None, True),
        ([event(1, ModType.SNAPSHOT), event(2)], NOW, False),
        ([event(1, ModType.TRUNCATE)], NOW, False),
        ([fault(1), event(2)], NOW, True),
        ([fault(1, NOW)], NOW, False),
    ],
)
def test_content_of_raw_records(events: list[Event], since_micros: int | None, lacks_moments: bool) -> None:
    """The earliest moment counts, and what has none or another one each time it is read is known."""
    kinds = {item.mod_type for item in events if isinstance(item, SourceEvent)}
    content = content_of(batch_of(*events))

    assert (content.records, content.since_micros) == (len(events), since_micros)
    assert (content.lacks_moments, content.tables) == (lacks_moments, frozenset("t"))
    assert {kind for _, kind, _, text in content.shapes if text is not None} == {*map(str, kinds)}
    assert content.has_faults == any(isinstance(item, FaultyEvent) for item in events)
    has_snapshots = bool(kinds & {ModType.SNAPSHOT, ModType.TRUNCATE})
    assert ("change_kind" in content.earlier_changes_sql) == has_snapshots


def test_the_first_event_of_a_shape_is_found() -> None:
    """The first ordering key of a table's column types counts, with deletes or without them."""
    ordered = [
        event(1)._replace(ordering_key="3"),
        event(2, ModType.DELETE)._replace(ordering_key="1"),
        event(3, ModType.INSERT)._replace(ordering_key="2"),
    ]
    content = content_of(batch_of(ordered[0])).plus(content_of(batch_of(*ordered[1:])))

    assert content.typed_tables() == {("t", "[]"): "1"}
    assert content.typed_tables(skips_deletes=True) == {("t", "[]"): "2"}


def test_the_content_of_two_batches_is_that_of_all_their_records() -> None:
    """Of several batches the earliest moment counts, and what one of them lacks."""
    first: list[Event] = [event(1), event(2, micros=None)]
    second: list[Event] = [event(3, ModType.SNAPSHOT, NOW - 7), fault(4)]

    both = content_of(batch_of(*first)).plus(content_of(batch_of(*second)))

    alone = content_of(batch_of(*first, *second))
    assert alone == replace(both, places=alone.places)
    assert both == WindowContent().plus(both)
    assert both == content_from_json(json.loads(json.dumps(content_to_json(both))))


@pytest.mark.parametrize(
    ("expected", "facts"),
    [
        (ValueFacts(10), {"new_values": "{}"}),
        (ValueFacts(12), {"new_values": '{"a":"äö"}'}),
        (ValueFacts(10, lacks_values=True), {"unavailable_columns": ("v",)}),
        (
            ValueFacts(10, lacks_values=True, lacks_of_new=True),
            {"unavailable_columns": ("v",), "mod_type": ModType.INSERT},
        ),
        (
            ValueFacts(10, lacks_values=True, lacks_of_new=True),
            {"unavailable_columns": ("v",), "previous_keys": "{}"},
        ),
        (ValueFacts(24, has_unnumbered=True), {"keys": f'{UNNUMBERED_PREFIX}"a"}}'}),
        (ValueFacts(10, has_addresses=True), {"metadata": '{"row_id":"A"}'}),
        (ValueFacts(10), {"metadata": '{"arrow_id":"A"}'}),
    ],
)
def test_facts_about_values(expected: ValueFacts, facts: dict[str, Any]) -> None:
    """Whatever keeps a change from entering the log unchanged is known of the events together."""
    assert expected == content_of(batch_of(event(1)._replace(**facts))).values


_CHANGES: Final = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sampled_from([ModType.UPDATE, ModType.SNAPSHOT, ModType.TRUNCATE]),
        st.none() | st.integers(NOW - 5_000_000, NOW),
    ),
    min_size=4,
    max_size=8,
    unique_by=lambda change: change[0],
)


@pytest.mark.integration
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    logged=_CHANGES, again=st.sets(st.integers(0, 6)), new=st.sets(st.integers(7, 9)), breaks=st.booleans()
)
def test_all_that_comes_again_is_found_in_the_part_of_the_log_that_is_asked(
    spark: "SparkSession",
    logged: list[tuple[int, ModType, int | None]],
    again: set[int],
    new: set[int],
    breaks: bool,
) -> None:
    """Of records that come again, with another moment where that can be, or broken, none passes."""
    log = order_events(
        spark.createDataFrame(pa.Table.from_batches([batch_of(*(event(*c) for c in logged))])),
        0,
        1,
        (),
        EVENTS,
    ).frame
    repeated = [change for change in logged if change[0] in again]
    records: list[Event] = [event(number) for number in sorted(new)]
    for number, kind, micros in repeated:
        # What had no moment may have one now, and rows of a snapshot that is read again have another one.
        moment = NOW + 9_000_000 if micros is None or kind is not ModType.UPDATE else micros
        records.append(fault(number) if breaks else event(number, kind, moment))
    if not records:
        return
    batch = batch_of(*records)

    earlier = log.where(content_of(batch).earlier_changes_sql)
    remaining = without_repeated(spark.createDataFrame(pa.Table.from_batches([batch])), earlier, EVENTS)

    assert {f"event {number}" for number in new} == {
        row[0] for row in remaining.select("record_sequence").collect()
    }
