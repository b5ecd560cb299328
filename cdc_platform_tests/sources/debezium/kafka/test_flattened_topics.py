"""Topics of ExtractNewRecordState: each tombstone is compared with the event before it in its partition."""

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.sources.debezium.kafka import message_dealer
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform_tests.sources.debezium.topic_logs import TopicLogs
from cdc_platform_tests.sources.debezium.written_events import envelope, settings_with

KAFKA: Final = KafkaInput("localhost:9092", ".*")
TOPIC: Final = "server.public.orders"
ADDED: Final = {"__source_schema": "public", "__source_table": "orders", "__source_name": "server"}
KEYS: Final = st.integers(1, 4)
Sent = tuple[str, int]
"""An operation, and the key of its row: `c`, `u`, `d` with its tombstone, or `t`, a tombstone alone."""


def messages_of(sent: Sequence[Sent]) -> list[dict[str, Any]]:
    """Return the messages of single changes, each its own transaction."""
    messages: list[dict[str, Any]] = []
    for number, (op, key) in enumerate(sent):
        place = {"__op": op, "__source_lsn": 1_000 + number, "__source_txId": 100 + number}
        row = {"id": key, "n": number, **ADDED, **place, "__deleted": "true" if op == "d" else "false"}
        deletes: dict[str, list[Any]] = {"d": [row, None], "t": [None]}
        common = {"topic": TOPIC, "key": {"id": key}, "headers": None}
        messages += [
            {**common, "value": value, "timestamp": number + 2 * late}
            for late, value in enumerate(deletes.get(op, [row]))
        ]
    return messages


def envelopes_of(sent: Sequence[Sent]) -> list[dict[str, Any]]:
    """Return the messages of later changes, after the transform was taken away."""
    messages: list[dict[str, Any]] = []
    for number, (op, key) in enumerate(sent, start=200):
        source = {"name": "server", "txId": number, "lsn": 10 * number, "sequence": None}
        value = envelope(op, source=source, **{"before" if op == "d" else "after": {"id": key, "n": number}})
        common = {"topic": TOPIC, "key": {"id": key}, "headers": None, "timestamp": number}
        messages += [{**common, "value": part} for part in (value, None)[: 1 + (op == "d")]]
    return messages


def cycles_of(
    messages: Sequence[dict[str, Any]], *, partitions: int, splits: int, until: Sequence[int] = ()
) -> tuple[list[str], TopicLogs]:
    """Return the rows of cycles, each of which knows so many messages, and the logs that they read."""
    logs, rows, begin = TopicLogs(settings_with(input=KAFKA), KAFKA, splits=splits), list[dict[str, Any]](), 0
    for end in (*until, len(messages)):
        for message in messages[begin:end]:
            logs.append(message, partitions)
        rows += logs.cycle()
        begin = end
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows), logs


def faults_of(rows: Sequence[str]) -> int:
    """Return how many rows are faults."""
    return sum("has sent a tombstone alone" in row for row in rows)


def test_deletes_of_several_partitions_are_no_faults() -> None:
    """Messages of another partition come between a delete and its tombstone."""
    sent = [("c", 1), ("c", 2), ("d", 1), ("d", 2), ("c", 3), ("c", 4), ("d", 3), ("d", 4)]
    rows, _ = cycles_of(messages_of(sent), partitions=4, splits=1)
    assert faults_of(rows) == 0


@given(
    sent=st.lists(st.tuples(st.sampled_from("cudt"), KEYS), min_size=1, max_size=25),
    later=st.lists(st.tuples(st.sampled_from("cud"), KEYS), max_size=8),
    partitions=st.integers(1, 3),
    splits=st.integers(2, 5),
    until=st.lists(st.integers(1, 40), max_size=3).map(sorted),
)
def test_splits_give_the_rows_of_one(
    sent: list[Sent], later: list[Sent], partitions: int, splits: int, until: list[int]
) -> None:
    """A tombstone alone is a fault in any split, and after any cycle, while the topic is flattened."""
    messages = messages_of(sent) + envelopes_of(later)
    until = [min(end, len(messages)) for end in until]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_dealer, "DEALT_BYTES", 1_000)
        expected, _ = cycles_of(messages, partitions=partitions, splits=1, until=until)
        rows, _ = cycles_of(messages, partitions=partitions, splits=splits, until=until)
    assert expected == rows


def test_a_flattened_topic_is_decoded_by_all_tasks_in_one_round() -> None:
    """In the first cycle and in later ones, with tombstones."""
    sent = [("c", 1), ("u", 1), ("d", 1), ("c", 2), ("u", 2), ("d", 2)] * 5
    rows, logs = cycles_of(messages_of(sent), partitions=2, splits=3, until=(20,))
    assert (0, len(sent)) == (faults_of(rows), len(rows))
    assert logs.rounds == [1, 1]
    assert logs.dealt == [3, 3]


@pytest.mark.parametrize("splits", [1, 3])
def test_tombstones_of_a_topic_that_is_no_longer_flattened_are_no_faults(splits: int) -> None:
    """A user has taken the transform away, as the advice for such a fault says."""
    keys = range(1, 9)
    messages = messages_of([("c", key) for key in keys]) + envelopes_of([("d", key) for key in keys])
    # The third cycle begins with a tombstone.
    rows, logs = cycles_of(messages, partitions=2, splits=splits, until=(8, 11))
    assert (0, 2 * len(keys)) == (faults_of(rows), len(rows))
    assert logs.rounds[-1] == 1
