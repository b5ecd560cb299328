"""Partitions of topics, read in parallel in cycles: transactions stay whole and in order, nothing is lost."""

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from random import Random
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_platform.model.stream.read_windows import ReadPlan
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicProgress, TopicRange
from cdc_platform.sources.debezium.kafka.topics_reader import TopicsReading
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.splits.release import GONE
from cdc_platform_tests.sources.debezium.applied_changes import Lake, row_change_of, rows_of, true_rows
from cdc_platform_tests.sources.debezium.captures_read import (
    GOLDEN,
    decode,
    events_in,
    settings_for,
    truth_of,
)
from cdc_platform_tests.sources.debezium.topic_logs import WINDOW, Place, TopicLogs
from cdc_platform_tests.sources.debezium.written_events import envelope, line, settings_with
from cdc_platform_tests.strategies import share_of_profile

KAFKA: Final = KafkaInput("localhost:9092", ".*")
PATIENCE_MS: Final = int(KAFKA.transaction_patience_s * 1000)


@cache
def messages_of(capture: str) -> tuple[dict[str, Any], ...]:
    """Return the messages of a capture."""
    with gzip.open(GOLDEN / f"{capture}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def logs_for(capture: str, *, has_transaction_metadata: bool = True, splits: int = 1) -> TopicLogs:
    """Return logs without messages, for those of a capture."""
    settings = settings_for(truth_of(capture), input=KAFKA, has_transaction_topic=has_transaction_metadata)
    return TopicLogs(settings, KAFKA, splits=splits)


@dataclass(frozen=True)
class Delivery:
    """Arrival of a capture's messages.

    Args:
        capture: its name.
        broken: numbers of messages whose values are not those of their columns.
        partitions: how many each table's topic has.
        numbers: of the messages, in the order of their sending.
        sent: of how many each cycle but the last one knows, ascending.
        has_headers: whether the connector's headers were kept.
        splits: how many splits the messages of a cycle are dealt out to.
    """

    capture: str
    broken: frozenset[int] = frozenset()
    partitions: int = 1
    numbers: tuple[int, ...] = ()
    sent: tuple[int, ...] = ()
    has_headers: bool = True
    splits: int = 1

    def message(self, number: int) -> dict[str, Any]:
        """Return a message as it is sent."""
        message = messages_of(self.capture)[number]
        message = message if self.has_headers else {**message, "headers": None}
        after = (message["value"] or {}).get("after")
        if number not in self.broken or not after:
            return message
        whole = next(name for name in ("n", "balance", "amount", "account") if name in after)
        return {**message, "value": {**message["value"], "after": {**after, whole: "much"}}}


@st.composite
def deliveries(draw: st.DrawFn) -> Delivery:
    """Return a delivery, with or without a crash, after which the connector resumes from an earlier place."""
    capture = draw(st.sampled_from(["transactions", "truncates", "keys"]))
    total = len(messages_of(capture))
    numbers = list(range(total))
    if draw(st.booleans()):
        crashed = draw(st.integers(1, total))
        numbers = [*range(crashed), *range(draw(st.integers(0, crashed)), total)]
    sent = sorted(draw(st.lists(st.integers(0, len(numbers)), max_size=4)))
    broken = draw(st.frozensets(st.integers(0, total - 1), max_size=2))
    partitions, has_headers = draw(st.integers(1, 4)), draw(st.booleans())
    splits = draw(st.integers(1, 3))
    return Delivery(capture, broken, partitions, tuple(numbers), tuple(sent), has_headers, splits)


def whole_delivery(capture: str, broken: frozenset[int] = frozenset()) -> Delivery:
    """Return a delivery of everything at once."""
    return Delivery(capture, broken, 1, tuple(range(len(messages_of(capture)))))


Rows = list[dict[str, Any]]


def cycles_of(delivery: Delivery, dice: Random | None = None) -> list[Rows]:
    """Return what each cycle has read; with dice partitions lag behind each other."""
    logs = logs_for(delivery.capture, splits=delivery.splits)
    cycles, ends = list[Rows](), dict[Place, int]()
    sent = 0
    for until in (*delivery.sent, len(delivery.numbers)):
        for number in delivery.numbers[sent:until]:
            logs.append(delivery.message(number), delivery.partitions)
        sent = max(sent, until)
        ends = {
            place: dice.randint(ends.get(place, 0), len(log)) if dice else len(log)
            for place, log in logs.logs.items()
        }
        cycles.append(logs.cycle(ends) if logs.logs else [])
    cycles.append(logs.cycle())
    return cycles


def lake_of(cycles: Sequence[Rows]) -> tuple[list[Rows], Lake]:
    """Return what each cycle brings into the log, and the lake that all of them make.

    As in the steps of a cycle what the log has is left out, and transactions with a faulty event are.
    """
    logged, lake, identities = list[Rows](), Lake(), set[str]()
    for rows in cycles:
        fresh = {row["record_sequence"]: row for row in rows if row["record_sequence"] not in identities}
        broken = {row["server_transaction_id"] for row in fresh.values() if row["event"]["fault"]}
        sound = [row for row in fresh.values() if row["server_transaction_id"] not in broken]
        sound.sort(key=lambda row: str(row["record_order"]))
        identities |= {row["record_sequence"] for row in sound}
        lake.take([row_change_of(row) for row in sound])
        logged.append(sound)
    return logged, lake


class LoadedDice(Random):
    """Dice that give listed numbers.

    Args:
        falls: numbers, in the order of the throws.
    """

    def __init__(self, *falls: int) -> None:
        super().__init__(0)
        self._falls = cycle(falls)

    def randint(self, a: int, b: int) -> int:
        """Return the next number, which must be one of those from `a` to `b`."""
        fall = next(self._falls)
        assert a <= fall <= b
        return fall


@share_of_profile(0.6)
@example(
    # A transaction without a readable event comes whole before those that it follows.
    Delivery("transactions", frozenset({26}), 3, tuple(range(41)), (28,), has_headers=False),
    LoadedDice(3, 5, 0, 12, 3, 0, 0, 3, 5, 0, 12, 3, 0, 0, 4),
)
@example(
    # An event that cannot be read comes twice, while another partition lags behind.
    Delivery("truncates", frozenset({0, 13}), 1, (*range(16), *range(12, 36)), (10, 25)),
    Random(385869),  # noqa: S311  a test's moments, not a secret
)
@example(
    # The only event of a transaction, which cannot be read, comes twice, and later the boundaries come again.
    Delivery("transactions", frozenset({5}), 1, (*range(7), *range(41)), (), has_headers=False),
    LoadedDice(0, 2, 2, 0),
)
@given(deliveries(), st.randoms(use_true_random=False))
def test_cycles_have_whole_transactions_in_order(delivery: Delivery, dice: Random) -> None:
    """For any lag of partitions, repeats and unreadable messages, the result is one lake.

    So it is with the connector's headers and without. Cycles add up to the stream, and no marker is anywhere,
    but the one that somebody has written.
    """
    _, expected = lake_of(cycles_of(whole_delivery(delivery.capture, delivery.broken)))
    cycles = cycles_of(delivery, dice)
    logged, lake = lake_of(cycles)
    assert expected.tables == lake.tables
    identities = {row["record_sequence"] for rows in logged for row in rows}
    refused = {row["record_sequence"]: row for rows in cycles for row in rows if row["event"]["fault"]}
    quarantined = [row for identity, row in refused.items() if identity not in identities]
    # What comes again of a refused transaction may have been truncated since, and is refused for both.
    broken = {row["server_transaction_id"] for row in refused.values() if row["event"]["fault"] != GONE}
    passed_by = [row for row in quarantined if row["server_transaction_id"] not in broken]
    changes = [row_change_of(row) for row in passed_by if row["event"]["fault"] == GONE]
    assert Counter(map(str, expected.log)) == Counter(map(str, [*lake.log, *changes]))
    marked = {change.key for change in lake.log if DEFAULT_PLACEHOLDER in str(change.new_values)}
    assert marked <= {'{"id":700}'}
    _assert_whole(logged)
    if not delivery.broken:
        assert len(changes) == len(quarantined)
        for table, truth in truth_of(delivery.capture).items():
            assert true_rows(truth) == rows_of(lake.tables, table)


def _assert_whole(new: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Each transaction comes with one cycle, after all that were committed before it."""
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


@pytest.mark.parametrize("has_transaction_metadata", [True, False])
@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 6])
def test_either_half_of_a_key_change_may_be_read_first(
    partitions: int, *, has_transaction_metadata: bool
) -> None:
    """Without headers the halves find each other in any order, and the log is that with headers."""
    logs = []
    for has_headers in (True, False):
        delivery = Delivery("keys", has_headers=has_headers)
        topics = logs_for("keys", has_transaction_metadata=has_transaction_metadata)
        for number in range(len(messages_of("keys"))):
            topics.append(delivery.message(number), partitions)
        _, lake = lake_of([topics.cycle()])
        assert true_rows(truth_of("keys")["public.items"]) == rows_of(lake.tables, "public.items")
        logs.append(lake.log)
    assert logs[0] == logs[1]


@pytest.mark.parametrize("capture", ["transactions", "keys", "truncates", "incremental_snapshot"])
def test_splits_come_to_the_same(capture: str) -> None:
    """Messages that are dealt out give the rows of one decoder, in one round once tables are known."""
    rows = []
    for splits in (1, 3):
        logs = logs_for(capture, splits=splits)
        messages = messages_of(capture)
        for some in (messages[: len(messages) // 2], messages[len(messages) // 2 :]):
            for message in some:
                logs.append(message, 2)
            rows.append(sorted(json.dumps(row, default=str, sort_keys=True) for row in logs.cycle()))
    assert rows[:2] == rows[2:]
    assert logs.rounds[1] == 1
    assert logs.dealt[-1] > 1


def test_halves_find_each_other_among_many() -> None:
    """One statement gives many rows other keys: all that it deletes may be read before what it inserts."""
    logs = TopicLogs(settings_with(input=KAFKA), KAFKA)
    for key in range(3000):
        source = {"lsn": 500 + key}
        marked = {"id": key + 5000, "n": 1, "big": DEFAULT_PLACEHOLDER}
        gone = line(envelope("d", source=source), {"id": key})
        moved = line(envelope("c", after=marked, source=source), {"id": key + 5000})
        for text, topic in ((gone, "1.public.orders"), (moved, "2.public.orders")):
            logs.append({**json.loads(text), "topic": topic, "headers": None, "timestamp": 1}, 1)
    rows = [row for row in logs.cycle() if row["mod_type"] == "INSERT"]
    assert [f'{{"id":{key}}}' for key in range(3000)] == [row["event"]["previous_keys"] for row in rows]


def test_a_half_whose_other_half_comes_too_late_lacks_its_values() -> None:
    """Without transactions and headers nothing waits for it: what was not sent is unresolved, and no text."""
    gone, moved = (
        {**json.loads(item), "headers": None, "timestamp": 1}
        for item in (
            line(envelope("d", before={"id": 1}), {"id": 1}),
            line(envelope("c", after={"id": 9, "n": 1, "big": DEFAULT_PLACEHOLDER}), {"id": 9}),
        )
    )
    logs = TopicLogs(settings_with(input=KAFKA), KAFKA)
    cycles = []
    for message in (moved, gone):
        logs.append({**message, "topic": "s.public.orders"}, 4)
        cycles.append(logs.cycle())
    _, lake = lake_of(cycles)
    (unresolved,) = lake.unresolved
    assert unresolved.unavailable == ("big",)
    assert DEFAULT_PLACEHOLDER not in str(lake.log)


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_rest_of_a_refused_transaction_is_refused(partitions: int) -> None:
    """It comes again from behind the event that cannot be read, and no part of it enters the log."""
    begin, broken, end = 7, 8, 12
    again = (*range(end), *range(broken + 1, len(messages_of("transactions"))))
    logged, lake = lake_of(
        cycles_of(Delivery("transactions", frozenset({broken}), partitions, again, (end,)))
    )
    transaction = messages_of("transactions")[begin]["value"]["id"].split(":")[0]
    assert transaction not in {row["server_transaction_id"] for rows in logged for row in rows}
    _, expected = lake_of(cycles_of(whole_delivery("transactions", frozenset({broken}))))
    assert expected.tables == lake.tables


def test_rows_that_were_truncated_unread_stay_gone() -> None:
    """The partition of a snapshot's row lags behind that of the truncate, in which the table is emptied."""
    logs, row, until = logs_for("truncates"), 4, 9
    places = [logs.append(message, 3) for message in messages_of("truncates")[:until]]
    ends = {place: len(log) for place, log in logs.logs.items()}
    cycles = [logs.cycle({**ends, places[row]: 0}), logs.cycle()]
    _, lake = lake_of(cycles)
    assert [row["event"]["fault"] for row in cycles[1]] == [GONE]
    assert "public.entries" not in {table for table, _ in lake.tables}


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
    rows = logs.cycle()
    assert len(events_in(decode("transactions", logs.settings))) == len(rows)
    assert len([row for row in rows if row["event"]["fault"]]) == 1


def test_a_transaction_that_never_becomes_whole_is_given_up() -> None:
    """Others wait behind it, until messages come that are so much younger; then quarantine has its rest."""
    logs = logs_for("transactions")
    messages = messages_of("transactions")
    for number, message in enumerate(messages):
        if number != _last_change():
            logs.append(message, 3)
    first = logs.cycle()
    assert [row for row in first if row["event"]["fault"]] == []
    places = [TopicProgress.of(text) for text in logs.read_progress.values() if text.startswith('["ID"')]
    assert any(progress.next_offset < progress.seen_exclusive for progress in places)
    heartbeat = {**messages[-1], "topic": "__debezium-heartbeat.cdc", "key": {"serverName": "cdc"}}
    late = {"value": {"ts_ms": 1}, "timestamp": messages[-1]["timestamp"] + PATIENCE_MS + 1}
    logs.append({**heartbeat, **late}, 1)
    second = logs.cycle()
    faults = {row["event"]["fault"] for row in second}
    (fault,) = faults
    assert "11 events according to the connector, of which 10 have come" in fault
    assert len(events_in(decode("transactions", logs.settings))) - 1 == len(first) + len(second)


def _last_change() -> int:
    """Return the number of the last message that is a change of the last transaction."""
    return max(
        number
        for number, message in enumerate(messages_of("transactions"))
        if message["topic"] == "cdc.public.entries"
    )


def test_a_state_outlives_a_cycle_without_messages() -> None:
    """The first cycle of a stream may have none; its states are still kept."""
    logs = logs_for("transactions")
    assert logs.cycle_without_messages() == []
    assert "decoder state" in logs.read_progress


@pytest.mark.parametrize(("splits", "messages"), [(8, 100), (8, 250_000), (16, 500_000)])
def test_more_messages_are_in_more_splits_instead_of_larger_ones(splits: int, messages: int) -> None:
    """A task holds one split in memory, however many messages a cycle reads."""
    ranges = tuple(TopicRange("t", partition, "ID", 0, 0, messages // 4) for partition in range(4))
    plan = ReadPlan((WINDOW,), {"ranges": ranges, "state": None, "passed": None})
    logs = logs_for("transactions")
    assert splits == TopicsReading(logs.settings, logs.kafka, 1, plan).splits(8)
