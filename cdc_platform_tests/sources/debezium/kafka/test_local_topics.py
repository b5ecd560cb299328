"""Messages that the pipeline's process polls: those that Spark reads, in the same order."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError

from cdc_platform.errors import OffsetsLost, SourceUnreachable
from cdc_platform.sources.debezium.kafka.kafka_client import KafkaClient
from cdc_platform.sources.debezium.kafka.kafka_failures import broker_failures
from cdc_platform.sources.debezium.kafka.local_topics import MAX_BYTES, MAX_OFFSETS, poll_messages
from cdc_platform.sources.debezium.kafka.messages import MESSAGES, MessageRouter
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicPartition, TopicRange
from cdc_platform.sources.debezium.kafka.topics_frame import read_messages
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform_tests.servers.kafka import ANSWERED_WITHIN_S, Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

TOPICS: Final = {"polled.a": 3, "polled.b": 1, "polled.aborted": 1}
ISOLATIONS: Final = ("read_committed", "read_uncommitted")
NOW_MS: Final = 1_800_000_000_000
HEADERS: Final[Sequence[list[tuple[str, bytes | None]] | None]] = (
    None,
    [],
    [("h", b"1")],
    [("h", b"1"), ("null", None), ("größe", b"\x00\xff")],
)


@pytest.fixture(scope="module")
def topics(kafka: Broker) -> KafkaInput:
    """Topics with committed and aborted transactions, markers at ends, and empty partitions."""
    for topic, partitions in TOPICS.items():
        kafka.create(topic, partitions)
    dice = Random(18)  # noqa: S311  a test's messages, not a secret
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": "polled"})
    producer.init_transactions(ANSWERED_WITHIN_S)
    for number in range(24):
        producer.begin_transaction()
        for _ in range(dice.randint(1, 9)):
            _produce(producer, dice)
        if number % 4 != 3:
            producer.commit_transaction(ANSWERED_WITHIN_S)
            continue
        producer.produce("polled.aborted", b"never")
        # What is aborted has to lie in the topics first.
        assert producer.flush(ANSWERED_WITHIN_S) == 0
        producer.abort_transaction(ANSWERED_WITHIN_S)
    return KafkaInput(kafka.address, "polled[.].*", timeout_s=20.0)


def _produce(producer: Producer, dice: Random) -> None:
    topic = dice.choice(("polled.a", "polled.a", "polled.b"))
    producer.produce(
        topic,
        value=dice.choice((None, b"", dice.randbytes(20))),
        key=dice.choice((None, b"", b"key")),
        # The last partition of a topic with several stays empty.
        partition=dice.randrange(max(1, TOPICS[topic] - 1)),
        headers=dice.choice(HEADERS),
        timestamp=NOW_MS + dice.randint(-5000, 5000),
    )


def _client(topics: KafkaInput, isolation: str) -> tuple[KafkaInput, KafkaClient]:
    kafka = replace(topics, options={"kafka.isolation.level": isolation})
    return kafka, KafkaClient(kafka)


def _polled(client: KafkaClient, ranges: Sequence[TopicRange]) -> list[dict[str, Any]]:
    messages = poll_messages(client, ranges)
    assert messages is not None
    rows: list[dict[str, Any]] = messages.to_pylist()
    return rows


def _read_by_spark(
    spark: "SparkSession", place: KafkaInput, ranges: Sequence[TopicRange]
) -> list[dict[str, Any]]:
    """Return the messages of ranges as a single split."""
    messages = read_messages(spark, place, ranges, MessageRouter()).select(*MESSAGES.names)
    rows: list[dict[str, Any]] = messages.toArrow().to_pylist()
    return rows


def _cut(partition: TopicPartition, cuts: Sequence[float]) -> list[TopicRange]:
    """Return consecutive ranges of a partition, cut at these parts of its offsets."""
    offsets = sorted(
        {partition.earliest, *(round(cut * partition.end_exclusive) for cut in cuts), partition.end_exclusive}
    )
    whole = partition.first(partition.end_exclusive)
    return [
        replace(whole, start=start, seen=start, end_exclusive=end)
        for start, end in itertools.pairwise(offsets)
    ]


CUTS: Final = st.lists(st.floats(0, 1), max_size=3)


@settings(max_examples=40)
@given(cuts=st.lists(CUTS, min_size=9, max_size=9), isolation=st.sampled_from(ISOLATIONS))
def test_ranges_add_up_to_the_topics(
    topics: KafkaInput, cuts: Sequence[Sequence[float]], isolation: str
) -> None:
    """Wherever ranges end, at messages, markers or aborted ones, each message is in one of them."""
    _, client = _client(topics, isolation)
    partitions = client.partitions()
    whole = _polled(client, [partition.first(partition.end_exclusive) for partition in partitions])
    chunks = [_cut(partition, part) for partition, part in zip(partitions, cuts, strict=False)]
    rows = [
        row
        for step in itertools.zip_longest(*chunks)
        for row in _polled(client, [partition for partition in step if partition is not None])
    ]
    assert sorted(whole, key=_place) == sorted(rows, key=_place)
    assert len({_place(row) for row in rows}) == len(rows)


def _place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("cuts", [(), (0.4, 0.7)])
def test_spark_reads_the_same(
    kafka_spark: "SparkSession", topics: KafkaInput, isolation: str, cuts: Sequence[float]
) -> None:
    """Spark and this process read the same messages, with the same parts, in the same order."""
    place, client = _client(topics, isolation)
    ranges = [
        chunks[len(chunks) // 2] for partition in client.partitions() if (chunks := _cut(partition, cuts))
    ]
    expected = (
        read_messages(kafka_spark, place, ranges, MessageRouter())
        .select(*MESSAGES.names)
        .toArrow()
        .to_pylist()
    )
    assert expected == _polled(client, ranges)
    assert ("polled.aborted" in {row["topic"] for row in expected}) == (isolation == ISOLATIONS[1])
    assert {True, False} == {row["value"] is None for row in expected}
    assert {True, False} == {row["headers"] is None for row in expected}


def test_many_or_large_messages_are_left_to_spark(kafka: Broker) -> None:
    """This process gives up before it holds more than it may."""
    kafka.create("large.a")
    producer = Producer({"bootstrap.servers": kafka.address})
    for _ in range(MAX_BYTES // 900_000 + 1):
        producer.produce("large.a", b"x" * 900_000)
    assert producer.flush(ANSWERED_WITHIN_S) == 0
    client = KafkaClient(KafkaInput(kafka.address, "large[.].*"))
    (partition,) = client.partitions()
    assert poll_messages(client, [partition.first(partition.end_exclusive)]) is None
    assert len(_polled(client, [partition.first(partition.end_exclusive - 1)])) == partition.end_exclusive - 1
    assert (
        poll_messages(client, [replace(partition, end_exclusive=MAX_OFFSETS + 1).first(MAX_OFFSETS + 1)])
        is None
    )


def test_a_broker_may_restart_while_messages_are_read(kafka: Broker) -> None:
    """Each message comes once, in its order, though the broker dies behind the first one."""
    kafka.create("restarted.a")
    producer = Producer({"bootstrap.servers": kafka.address})
    for _ in range(40):
        producer.produce("restarted.a", b"x" * 900_000)
    assert producer.flush(ANSWERED_WITHIN_S) == 0
    client = KafkaClient(KafkaInput(kafka.address, "restarted[.].*"))
    (partition,) = client.partitions()
    messages = client.messages([partition.first(partition.end_exclusive)])
    offsets = [next(messages).offset]
    kafka.stop()
    kafka.start()
    offsets += [message.offset for message in messages]
    assert [*range(40)] == offsets


def test_an_end_that_is_not_there_is_waited_for(topics: KafkaInput) -> None:
    """A broker that has less than it said is an error to try again after, and no message is passed over."""
    client = KafkaClient(replace(topics, timeout_s=1.0))
    partition = next(partition for partition in client.partitions() if partition.origin == "polled.b/0")
    with pytest.raises(SourceUnreachable, match="no message came"):
        poll_messages(
            client,
            [
                replace(partition, end_exclusive=partition.end_exclusive + 1).first(
                    partition.end_exclusive + 1
                )
            ],
        )


@pytest.mark.parametrize("is_local", [True, False])
def test_messages_deleted_after_the_plan_are_lost(
    kafka_spark: "SparkSession", kafka: Broker, is_local: bool
) -> None:
    """Either way of reading fails for a range with deleted messages, and reads no others instead."""
    topic = f"deleted.{'here' if is_local else 'spark'}"
    kafka.create(topic)
    kafka.send([json.dumps({"topic": topic, "key": 1, "value": 1, "timestamp": NOW_MS})] * 9, {})
    place = KafkaInput(kafka.address, topic, {"kafkaConsumer.pollTimeoutMs": "5000"})
    client = KafkaClient(place)
    ranges = [partition.first(partition.end_exclusive) for partition in client.partitions()]
    kafka.forget(topic, 0, 4)
    # The session of tests has got its jars late, so that its driver cannot read what a task says.
    expected = OffsetsLost if is_local else (OffsetsLost, Py4JJavaError)
    with pytest.raises(expected, match=topic if is_local else "aborted"), broker_failures(kafka.address):
        poll_messages(client, ranges) if is_local else read_messages(
            kafka_spark, place, ranges, MessageRouter()
        ).toArrow()
