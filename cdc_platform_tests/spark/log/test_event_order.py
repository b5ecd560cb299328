"""From raw records of events to the order of the log."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from cdc_platform.model.rows.keyless import UNNUMBERED_PREFIX
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.model.stream.records import ModType
from cdc_platform.model.stream.source_capabilities import SourceCapabilities
from cdc_platform.pipeline.ordering.final_counts import final_counts
from cdc_platform.pipeline.reading.window_content import content_of
from cdc_platform.pipeline.schema.key_shapes import tables_to_check
from cdc_platform.sources.event_batches import EventBatches
from cdc_platform.spark.log import event_order
from cdc_platform.spark.log.event_order import (
    HALF_FAULT,
    WindowFacts,
    count_events,
    order_events,
    with_whole_key_changes,
    with_whole_transactions,
)
from cdc_platform.spark.log.faults import KEYS_FAULT, LONG_FAULT
from cdc_platform.spark.log.order import SINGLE_TASK_RECORDS, OrderedChanges
from cdc_platform.spark.log.ordered_rows import measure_event_rows
from cdc_platform.spark.log.repeats import Repeats, find_repeats, without_repeated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.integration

EVENTS: Final = SourceCapabilities(
    delivers_events=True,
    keeps_transactions=True,
    comes_in_order=True,
    trusts_inserts=False,
    can_be_compared=False,
    can_be_copied=False,
    repeats_within_s=60.0,
)
SIZES: Final = pytest.mark.parametrize(
    "expected_records", [1, SINGLE_TASK_RECORDS + 1], ids=["one task", "many tasks"]
)
NOW: Final = 1_800_000_000_000_000
FILE: Final = SourceFile("a/file.jsonl", "a", 10, NOW)


def event(order: int, transaction: str = "", keys: str | None = None) -> SourceEvent:
    """Return an insert with a given place in the order; the key is the place."""
    return SourceEvent(
        table="visits",
        mod_type=ModType.INSERT,
        ordering_key=f"{order:04d}",
        event_id=f"event {order}",
        transaction_id=transaction,
        source_micros=None,
        column_types="[]",
        keys=json.dumps({"id": str(order)}) if keys is None else keys,
        new_values="{}",
    )


def raw_rows(events: Sequence[SourceEvent | FaultyEvent]) -> pa.Table:
    """Return the raw records of events that one cycle read."""
    batches, chunk = EventBatches(1), ReadWindow("", 0, NOW)
    for event in events:
        batches.add(event, chunk, FILE, event.transaction_id, 1)
    return pa.Table.from_batches(batches.take())


def records_of(spark: "SparkSession", events: Sequence[SourceEvent | FaultyEvent]) -> "DataFrame":
    """Return the same for Spark."""
    return spark.createDataFrame(raw_rows(events))


def facts_of(
    events: Sequence[SourceEvent | FaultyEvent], types: Sequence[tuple[str, str]] = ()
) -> WindowFacts:
    """Return the places of events, by which several tasks sort them, and the tables to check."""
    doubtful = tables_to_check(content_of(raw_rows(events)).shapes, types)
    return WindowFacts(doubtful, [(NOW, event.ordering_key or "") for event in events])


@SIZES
@pytest.mark.usefixtures("many_tasks")
def test_a_broken_copy_of_an_event_takes_no_place(spark: "SparkSession", expected_records: int) -> None:
    """Of an event that comes twice in a cycle, once unusable, both are judged: one is in the log."""
    broken = FaultyEvent("`v` is not a date", "{}", 0, table="visits", event_id="event 1")
    alone = replace(EVENTS, keeps_transactions=False, comes_in_order=False)
    orders: list[list[SourceEvent | FaultyEvent]] = [[event(1), broken, event(1)], [broken, event(1), broken]]
    for events in orders:
        records = records_of(spark, events)
        rows = (
            order_events(records, 100, expected_records, (), alone, facts_of(events))
            .frame.select("fault", "unsound")
            .collect()
        )
        assert {(row["fault"], row["unsound"]) for row in rows} == {(None, False), (broken.reason, True)}
        assert len(rows) == 2


@SIZES
@pytest.mark.usefixtures("many_tasks")
def test_changes_are_in_the_sources_order(spark: "SparkSession", expected_records: int) -> None:
    """The ordering key decides, then the identity, for any order of arrival; repeats are there once."""
    tied = event(90)._replace(ordering_key=event(9).ordering_key)
    events = [tied, *(event(place) for place in (3, 1, 4, 1, 5, 9, 2, 6, 5, 3))]

    records, facts = records_of(spark, events), facts_of(events)
    ordered = order_events(records, 100, expected_records, (), EVENTS, facts).frame

    rows = sorted((row.asDict() for row in ordered.collect()), key=lambda row: int(row["ordinal"]))
    places = [1, 2, 3, 4, 5, 6, 9]
    assert [json.dumps({"id": str(place)}) for place in (*places, 90)] == [row["keys"] for row in rows]
    assert [f"{place:04d}" for place in (*places, 9)] == [row["ordering_key"] for row in rows]
    # Ordinals have gaps, and the first of several ranges may be empty.
    assert rows[0]["ordinal"] >= 100
    assert expected_records > SINGLE_TASK_RECORDS or rows[-1]["ordinal"] == 100 + len(places)
    assert not any(row["unsound"] for row in rows)


@SIZES
@pytest.mark.usefixtures("many_tasks")
def test_transactions_are_sound_or_unsound_as_a_whole(spark: "SparkSession", expected_records: int) -> None:
    """A change without a JSON key, and an event that cannot be used, take their transactions along."""
    events: list[SourceEvent | FaultyEvent] = [
        event(1, "one"),
        event(2, "one", keys="no JSON"),
        event(3, "two"),
        event(4, "three"),
        FaultyEvent("it is broken", "text", 7, event_id="bad", transaction_id="three"),
        event(5),
        event(6),
        event(7, "two"),
    ]
    records, facts = records_of(spark, events), facts_of(events)
    ordered = order_events(records, 0, expected_records, (), EVENTS, facts).frame.persist()

    whole = with_whole_transactions(ordered)

    unsound = {row["record_id"] for row in whole.where("unsound").collect()}
    assert {"one/event 1", "one/event 2", "three/event 4", "three/bad"} == unsound
    stats = count_events(whole).stats
    assert (stats.changes, stats.transactions, stats.quarantined) == (4, 3, 4)
    assert stats == measure_event_rows(whole.toArrow())
    ordered.unpersist()


@pytest.mark.usefixtures("many_tasks")
def test_texts_that_the_parser_does_not_take_are_looked_at(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that is longer than Spark parses fits no type: its values would be NULL."""
    monkeypatch.setattr(event_order, "LONGEST_TEXT", 100)
    long, short = (event(size, keys=f"no JSON but {'x' * size}") for size in (100, 10))
    records = records_of(spark, [long, short])
    ordered = order_events(
        records,
        0,
        2,
        (),
        replace(EVENTS, keeps_transactions=False),
        facts_of([long, short], [("visits", "[]")]),
    ).frame
    assert [row["fault"] for row in ordered.sort(F.desc("ordering_key")).collect()] == [KEYS_FAULT, None]


@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize("types", [[], [("visits", "[]")]])
def test_a_text_that_is_too_long_for_the_parser_has_that_for_a_reason(
    spark: "SparkSession", types: list[tuple[str, str]]
) -> None:
    """A value of more than 20 million characters is not taken, and the reason says so."""
    long = event(1)._replace(new_values=json.dumps({"a": "x" * 20_000_001}))
    alone = replace(EVENTS, keeps_transactions=False)
    ordered = order_events(
        records_of(spark, [long, event(2)]), 0, 2, (), alone, facts_of([long, event(2)], types)
    ).frame
    assert [row["fault"] for row in ordered.sort("ordering_key").collect()] == [LONG_FAULT, None]


@SIZES
@pytest.mark.usefixtures("many_tasks")
def test_events_that_fit_are_not_looked_at(spark: "SparkSession", expected_records: int) -> None:
    """An event that fits its types enters the log unchanged; of a faulty one the whole record is kept."""
    alone = replace(EVENTS, keeps_transactions=False, comes_in_order=False)
    events: list[SourceEvent | FaultyEvent] = [
        event(1, keys="no JSON"),
        event(2, keys="no JSON either")._replace(column_types="[1]", metadata="{}"),
        FaultyEvent("it is broken", "text", 7, table="visits", event_id="bad"),
    ]
    records = records_of(spark, events)

    ordered = order_events(
        records, 0, expected_records, (), alone, facts_of(events, [("visits", "[]"), ("other", "[1]")])
    ).frame

    rows = {row["keys"]: row for row in ordered.collect()}
    assert [rows[keys]["fault"] for keys in ("no JSON", "no JSON either", None)] == [
        None,
        KEYS_FAULT,
        "it is broken",
    ]
    assert rows["no JSON"]["record"] is None
    record = json.loads(rows["no JSON either"]["record"])
    assert (record["column_types"], record["event"]["metadata"]) == ("[1]", "{}")
    assert record.keys() <= set(records.columns)


UNSORTED: Final[Mapping[str, SourceEvent | FaultyEvent]] = {
    "repeated": event(1),
    "unnumbered": event(7, "one", keys=f'{UNNUMBERED_PREFIX}"a"}}'),
    "to be checked": event(7, "one")._replace(column_types="[1]"),
    "to be completed": event(7, "one")._replace(unavailable_columns=("v",)),
    "too long": event(7, "one", keys=json.dumps({"id": "x" * 20_000_001})),
    "faulty": FaultyEvent(
        "it is broken", "text", 7, event_id="bad", transaction_id="one", ordering_key="0007"
    ),
}
"""Events for which a window must be sorted before it is counted."""


@pytest.mark.usefixtures("many_tasks")
def test_a_window_is_counted_without_a_look_at_its_rows(spark: "SparkSession") -> None:
    """If all its changes enter the log unchanged, and only then; the counts are those of the sorted rows."""
    capabilities = replace(EVENTS, leaves_values_out=True, completes_log=True)
    events = [event(1), event(2, "one"), event(3, "one"), event(4, "two")]

    def order(*events: SourceEvent | FaultyEvent) -> OrderedChanges:
        records, content, many = (
            records_of(spark, events),
            content_of(raw_rows(events)),
            SINGLE_TASK_RECORDS + 1,
        )
        types = [("visits", "[]")]
        facts = facts_of(events, types)._replace(
            repeats=find_repeats(records, None, 3), counts=final_counts(content, types, capabilities)
        )
        return order_events(records, 100, many, (), capabilities, facts)

    final = order(*events)
    rows = final.frame.toArrow().drop_columns(["fault"])
    assert final.stats is not None
    with_last = order(*events, UNSORTED["faulty"]).frame.where("record_id <> 'one/bad'").toArrow()
    assert rows.sort_by("ordinal") == with_last.sort_by("ordinal").drop_columns(["fault"])
    counts = count_events(final.frame).stats
    assert counts.next_ordinal <= final.stats.next_ordinal
    assert counts == replace(final.stats, next_ordinal=counts.next_ordinal)
    counted = [name for name, last in UNSORTED.items() if order(*events, last).stats is not None]
    assert counted == []


@pytest.mark.parametrize(("logged", "left"), [((4,), 3), ((2,), 2), ((1, 2, 3), 0)])
def test_what_the_log_has_does_not_come_again(
    spark: "SparkSession", logged: Sequence[int], left: int
) -> None:
    """Events that the log had within the time in which they may come again are left out."""
    log = order_events(records_of(spark, [event(place) for place in logged]), 0, 1, (), EVENTS).frame
    records = records_of(spark, [event(place) for place in (1, 2, 3)])

    frame = without_repeated(records, log, EVENTS)
    forgetful = without_repeated(records, log, replace(EVENTS, repeats_within_s=-1.0))

    assert [left, 3] == [frame.count(), forgetful.count()]
    assert (False, left < 3) == find_repeats(records, log, 3)[:2]


@pytest.mark.parametrize(
    ("expected", "events"),
    [
        (Repeats(among_them=False, in_log=False, transactions=2), [(3, "one"), (4, "one"), (3, "two")]),
        (Repeats(among_them=True, in_log=False, transactions=1), [(3, "one"), (3, "one")]),
        (Repeats(among_them=False, in_log=True, transactions=2), [(3, "one"), (2, "two")]),
        (Repeats(among_them=False, in_log=False, transactions=1), [(1, "two")]),
    ],
    ids=["new", "twice", "logged", "of another transaction"],
)
def test_one_query_finds_all_repeats(
    spark: "SparkSession", expected: Repeats, events: Sequence[tuple[int, str]]
) -> None:
    """Repeats are events of the same transaction; transactions that only the log has are not counted."""
    in_log = [event(1, "one"), event(2, "two"), event(9, "nine")]
    log = order_events(records_of(spark, in_log), 0, 1, (), EVENTS).frame

    assert find_repeats(records_of(spark, [event(*parts) for parts in events]), log, 3) == expected


def test_halves_of_a_key_change_are_sound_or_unsound_together(spark: "SparkSession") -> None:
    """They come from one place of the log; other rows of that place, as COPY writes them, stay sound."""

    def half(name: str, place: str, kind: ModType, previous: str | None = None) -> SourceEvent:
        plain = event(1, "7")._replace(ordering_key=f"{place} 0 0", event_id=name, mod_type=kind)
        return plain._replace(previous_keys=previous)

    broken = FaultyEvent("`v` is null", "{}", 0, ordering_key="01 05 1 1")
    events: list[SourceEvent | FaultyEvent] = [
        half("left with its insert", "01 05", ModType.DELETE),
        broken,
        half("left", "01 06", ModType.DELETE),
        half("taken", "01 06", ModType.INSERT, '{"id":"1"}'),
        half("left with its key", "01 07", ModType.DELETE),
        half("unfit", "01 07", ModType.INSERT, '{"id":"1"}')._replace(keys="no JSON"),
        half("copied", "01 08", ModType.INSERT),
        half("unfit copy", "01 08", ModType.INSERT)._replace(keys="no JSON"),
        FaultyEvent("no place is known", "{}", 1),
    ]
    alone = replace(EVENTS, keeps_transactions=False)
    ordered = order_events(records_of(spark, events), 0, len(events), (), alone).frame.persist()

    whole = with_whole_key_changes(ordered).collect()

    faults = {row["record_id"].removeprefix("7/"): row["fault"] for row in whole if row["unsound"]}
    assert {"left with its insert", "left with its key", "unfit", "unfit copy"} < faults.keys()
    assert [faults[f"left with its {half}"] for half in ("insert", "key")] == [HALF_FAULT, HALF_FAULT]
    assert faults["unfit"] == KEYS_FAULT
    assert {"left", "taken", "copied"} == {row["record_id"][2:] for row in whole if not row["unsound"]}
