"""Partitions of topics, read side by side in ticks: transactions stay whole and in order, nothing is lost."""

import gzip
import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.sources.debezium.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.topic_ranges import TopicProgress
from cdc_platform_tests.sources.debezium.captures_read import (
    GOLDEN,
    decode,
    events_in,
    settings_for,
    truth_of,
)
from cdc_platform_tests.sources.debezium.topic_logs import Place, TopicLogs

KAFKA: Final = KafkaInput("localhost:9092", ".*")
PATIENCE_MS: Final = int(KAFKA.transaction_patience_s * 1000)


@cache
def messages_of(capture: str) -> tuple[dict[str, Any], ...]:
    """Return the messages of a capture."""
    with gzip.open(GOLDEN / f"{capture}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def logs_for(capture: str, kafka: KafkaInput = KAFKA) -> TopicLogs:
    """Return logs without messages, for those of a capture."""
    settings = settings_for(truth_of(capture), input=kafka, has_transaction_topic=True)
    return TopicLogs(settings, kafka)


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[str, int, list[int], list[int]]:
    """Return a capture, how many partitions it has, what is delivered of it, and how much each tick sees."""
    capture = draw(st.sampled_from(["transactions", "keys"]))
    total = len(messages_of(capture))
    delivered = list(range(total))
    if draw(st.booleans()):
        # After a crash the connector goes on from where it last knew to have been.
        crashed = draw(st.integers(1, total))
        delivered = [*range(crashed), *range(draw(st.integers(0, crashed)), total)]
    seen = sorted(draw(st.lists(st.integers(0, len(delivered)), max_size=4)))
    return capture, draw(st.integers(1, 4)), delivered, seen


@settings(max_examples=50)
@given(deliveries(), st.randoms(use_true_random=False))
def test_ticks_have_whole_transactions_in_order(
    delivery: tuple[str, int, list[int], list[int]], dice: Any
) -> None:
    """However partitions lag behind each other, and whatever comes again, ticks add up to the stream."""
    capture, partitions, delivered, seen = delivery
    logs = logs_for(capture)
    ticks, ends = list[list[dict[str, Any]]](), dict[Place, int]()
    sent = 0
    for until in (*seen, len(delivered)):
        for number in delivered[sent:until]:
            logs.append(messages_of(capture)[number], partitions)
        sent = max(sent, until)
        ends = {place: dice.randint(ends.get(place, 0), len(log)) for place, log in logs.logs.items()}
        ticks.append(logs.tick(ends) if logs.logs else [])
    ticks.append(logs.tick())
    expected = {event.event_id: event.order_key for event in events_in(decode(capture, logs.settings))}
    new = _first_seen(ticks)
    assert expected.keys() == {row["record_sequence"] for rows in new for row in rows}
    assert [row for rows in ticks for row in rows if row["event"]["fault"]] == []
    _assert_whole(new)


def _first_seen(ticks: Sequence[Sequence[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Return the rows of each tick that no tick before it had."""
    known, new = set[str](), list[list[dict[str, Any]]]()
    for rows in ticks:
        new.append([row for row in rows if row["record_sequence"] not in known])
        known |= {row["record_sequence"] for row in rows}
    return new


def _assert_whole(new: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Each transaction comes with one tick, after all that were committed before it."""
    last = ""
    placed = dict[str, int]()
    for number, rows in enumerate(new):
        of_transactions = [row for row in rows if row["event"]["metadata"] and _is_change(row)]
        for row in of_transactions:
            assert number == placed.setdefault(row["server_transaction_id"], number)
        orders = [row["record_order"] for row in of_transactions]
        assert last <= min(orders, default=last)
        last = max(orders, default=last)


def _is_change(row: dict[str, Any]) -> bool:
    return json.loads(row["event"]["metadata"]).get("snapshot") is None


@pytest.mark.parametrize("partitions", [1, 3])
def test_an_unreadable_event_keeps_no_transaction_waiting(partitions: int) -> None:
    """Its transaction has arrived whole with it; it goes to quarantine, the others to the log."""
    logs = logs_for("transactions")
    for number, message in enumerate(messages_of("transactions")):
        if number == _last_change():
            after = {**message["value"]["after"], "amount": "much"}
            broken = {**message, "value": {**message["value"], "after": after}}
            logs.append(broken, partitions)
        else:
            logs.append(message, partitions)
    rows = logs.tick()
    assert len(events_in(decode("transactions", logs.settings))) == len(rows)
    assert len([row for row in rows if row["event"]["fault"]]) == 1


def test_a_transaction_that_never_becomes_whole_is_given_up() -> None:
    """Others wait behind it, until messages come that are so much younger; then quarantine has its rest."""
    logs = logs_for("transactions")
    messages = messages_of("transactions")
    for number, message in enumerate(messages):
        if number != _last_change():
            logs.append(message, 3)
    first = logs.tick()
    assert [row for row in first if row["event"]["fault"]] == []
    places = [TopicProgress.of(text) for text in logs.ledger.values() if text.startswith("ID#")]
    assert any(one.next_offset < one.seen_exclusive for one in places)
    heartbeat = {**messages[-1], "topic": "__debezium-heartbeat.cdc", "key": {"serverName": "cdc"}}
    late = {"value": {"ts_ms": 1}, "timestamp": messages[-1]["timestamp"] + PATIENCE_MS + 1}
    logs.append({**heartbeat, **late}, 1)
    second = logs.tick()
    faults = {row["event"]["fault"] for row in second}
    (fault,) = faults
    assert "11 events by the connector's word, of which 10 have come" in fault
    assert len(events_in(decode("transactions", logs.settings))) - 1 == len(first) + len(second)


def _last_change() -> int:
    """Return the number of the last message that is a change of the last transaction."""
    return max(
        number
        for number, message in enumerate(messages_of("transactions"))
        if message["topic"] == "cdc.public.entries"
    )


def test_a_state_outlives_a_tick_without_messages() -> None:
    """The first tick of a stream may have none; its states are kept all the same."""
    logs = logs_for("transactions")
    assert logs.tick_without_messages() == []
    assert "decoder state" in logs.ledger
