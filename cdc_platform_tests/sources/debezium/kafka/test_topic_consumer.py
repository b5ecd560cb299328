"""Messages that the pipeline's process polls: those that Spark reads, in the same order."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.errors import OffsetsLost, SourceError, SourceUnreachable
from cdc_platform.model.stream.lineage import begin
from cdc_platform.model.stream.read_windows import ReadRequest
from cdc_platform.sources.debezium.kafka.kafka_client import KafkaClient
from cdc_platform.sources.debezium.kafka.message_dealer import MessageDealer, messages_of
from cdc_platform.sources.debezium.kafka.messages import in_order
from cdc_platform.sources.debezium.kafka.topic_consumer import (
    MAX_BYTES,
    MAX_OFFSETS,
    TopicConsumer,
    read_few,
)
from cdc_platform.sources.debezium.kafka.topic_partition import TopicPartition
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicRange, first_messages
from cdc_platform.sources.debezium.kafka.topics_reader import deal_ranges, read_messages
from cdc_platform.sources.debezium.kafka.topics_source import TopicsSource
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.splits.outcome import SPLIT
from cdc_platform.sources.debezium.wire.messages import RawMessage
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


def _read(place: KafkaInput, ranges: Sequence[TopicRange]) -> list[RawMessage]:
    """Return the messages of ranges, read by this process."""
    messages = read_few(place, ranges)
    assert messages is not None
    return list(in_order(messages))


def _read_by_spark(
    spark: "SparkSession", place: KafkaInput, ranges: Sequence[TopicRange], splits: int
) -> list[RawMessage]:
    """Return the messages of ranges, read by as many tasks as there are splits."""
    parts = deal_ranges(ranges, splits)
    blocks = read_messages(spark, place, parts, MessageDealer(splits)).toArrow().to_batches()
    return list(in_order(messages_of(blocks)))


def _cut(partition: TopicPartition, cuts: Sequence[float]) -> list[TopicRange]:
    """Return consecutive ranges of a partition, cut at these parts of its offsets."""
    offsets = sorted(
        {partition.earliest, *(round(cut * partition.end_exclusive) for cut in cuts), partition.end_exclusive}
    )
    whole = _all_of(partition)
    return [
        replace(whole, start=start, seen=start, end_exclusive=end)
        for start, end in itertools.pairwise(offsets)
    ]


CUTS: Final = st.lists(st.floats(0, 1), max_size=3)


@pytest.fixture(scope="module")
def whole(topics: KafkaInput) -> dict[str, list[RawMessage]]:
    """All messages of the topics, by the isolation with which they are read."""
    places = {isolation: replace(topics, client={"isolation.level": isolation}) for isolation in ISOLATIONS}
    return {
        isolation: _read(
            place,
            [_all_of(partition) for partition in KafkaClient(place).partitions()],
        )
        for isolation, place in places.items()
    }


@settings(max_examples=40)
@given(cuts=st.lists(CUTS, min_size=9, max_size=9), isolation=st.sampled_from(ISOLATIONS))
def test_ranges_add_up_to_the_topics(
    topics: KafkaInput,
    whole: dict[str, list[RawMessage]],
    cuts: Sequence[Sequence[float]],
    isolation: str,
) -> None:
    """Wherever ranges end, at messages, markers or aborted ones, each message is in one of them."""
    place = replace(topics, client={"isolation.level": isolation})
    partitions = KafkaClient(place).partitions()
    chunks = [_cut(partition, part) for partition, part in zip(partitions, cuts, strict=False)]
    messages = [
        message
        for step in itertools.zip_longest(*chunks)
        for message in _read(place, [partition for partition in step if partition is not None])
    ]
    assert sorted(whole[isolation], key=_place) == sorted(messages, key=_place)
    assert len({_place(message) for message in messages}) == len(messages)


def test_a_plan_knows_the_oldest_message_that_it_leaves(
    topics: KafkaInput, whole: dict[str, list[RawMessage]]
) -> None:
    """Its send time is in the plan, which has none where everything is read; no later one is read before."""
    counts = ((60, True), (10_000, False))
    for max_messages, leaves_some in counts:
        source = TopicsSource(DebeziumSettings(topics), replace(topics, max_messages=max_messages))
        plan = source.plan(begin(source.start_micros()), ReadRequest(NOW_MS * 1000), dict)
        ends = {(item.topic, item.partition): item.end_exclusive for item in plan.inputs["ranges"]}
        firsts: dict[tuple[str, int], int | None] = {}
        newest_micros = 0
        for message in sorted(whole[ISOLATIONS[0]], key=_place):
            place = message.topic, message.partition
            if message.position == ends[place]:
                firsts[place] = message.timestamp_micros
            if message.position < ends[place]:
                newest_micros = max(newest_micros, message.timestamp_micros or 0)
        assert leaves_some == bool(firsts)
        oldest_micros = min(filter(None, firsts.values()), default=None)
        assert oldest_micros == plan.left_since_micros
        assert 0 < newest_micros <= (oldest_micros or newest_micros)
        source.close()


def _place(message: RawMessage) -> tuple[str, int, int]:
    return message.topic, message.partition, message.position


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(("cuts", "splits"), [((), 1), ((0.4, 0.7), 1), ((), 4)])
def test_spark_reads_the_same(
    spark: "SparkSession", topics: KafkaInput, isolation: str, cuts: Sequence[float], splits: int
) -> None:
    """Spark's tasks and this process read the same messages, with the same parts, in the same order."""
    place = replace(topics, client={"isolation.level": isolation})
    ranges = [
        chunks[len(chunks) // 2]
        for partition in KafkaClient(place).partitions()
        if (chunks := _cut(partition, cuts))
    ]
    expected = _read_by_spark(spark, place, ranges, splits)
    assert expected == _read(place, ranges)
    assert ("polled.aborted" in {message.topic for message in expected}) == (isolation == ISOLATIONS[1])
    assert {True, False} == {message.value is None for message in expected}
    assert {True, False} == {message.headers is None for message in expected}


def test_each_task_gets_one_split(spark: "SparkSession", topics: KafkaInput) -> None:
    """As many tasks as splits decode, and each of them has one."""
    partitions = KafkaClient(topics).partitions()
    ranges = [_all_of(partition) for partition in partitions]
    frame = read_messages(spark, topics, deal_ranges(ranges, 2), MessageDealer(3, spreads_snapshots=True))
    of_tasks = frame.rdd.mapPartitions(lambda rows: [{row[SPLIT] for row in rows}]).collect()
    assert [{0}, {1}, {2}] == [splits or {number} for number, splits in enumerate(of_tasks)]


def test_many_or_large_messages_are_left_to_spark(kafka: Broker) -> None:
    """This process gives up before it holds more than it may."""
    kafka.create("large.a")
    producer = Producer({"bootstrap.servers": kafka.address})
    for _ in range(MAX_BYTES // 900_000 + 1):
        producer.produce("large.a", b"x" * 900_000)
    assert producer.flush(ANSWERED_WITHIN_S) == 0
    place = KafkaInput(kafka.address, "large[.].*")
    (partition,) = KafkaClient(place).partitions()
    assert read_few(place, [_all_of(partition)]) is None
    assert (
        len(_read(place, [first_messages(partition, partition.end_exclusive - 1)]))
        == partition.end_exclusive - 1
    )
    many = first_messages(replace(partition, end_exclusive=MAX_OFFSETS + 1), MAX_OFFSETS + 1)
    assert read_few(place, [many]) is None


def test_a_broker_may_restart_while_messages_are_read(kafka: Broker) -> None:
    """Each message comes once, in its order, though the broker dies behind the first one."""
    kafka.create("restarted.a")
    producer = Producer({"bootstrap.servers": kafka.address})
    for _ in range(40):
        producer.produce("restarted.a", b"x" * 900_000)
    assert producer.flush(ANSWERED_WITHIN_S) == 0
    place = KafkaInput(kafka.address, "restarted[.].*")
    (partition,) = KafkaClient(place).partitions()
    batches = TopicConsumer(place, [_all_of(partition)]).batches()
    offsets = next(batches).column("offset").to_pylist()
    kafka.stop()
    kafka.start()
    for batch in batches:
        offsets += batch.column("offset").to_pylist()
    assert [*range(40)] == offsets


def test_an_end_that_is_not_there_is_waited_for(topics: KafkaInput) -> None:
    """A broker that has less than it said is an error to try again after, and no message is passed over."""
    place = replace(topics, timeout_s=1.0)
    partition = next(item for item in KafkaClient(place).partitions() if item.origin == "polled.b/0")
    beyond = partition.end_exclusive + 1
    with pytest.raises(SourceUnreachable, match="no message came"):
        read_few(place, [first_messages(replace(partition, end_exclusive=beyond), beyond)])


@pytest.mark.parametrize("is_local", [True, False])
def test_messages_deleted_after_the_plan_are_lost(
    spark: "SparkSession", kafka: Broker, *, is_local: bool
) -> None:
    """A range with deleted messages fails in this process and in tasks, and no others are read instead."""
    topic = f"deleted.{'here' if is_local else 'tasks'}"
    kafka.create(topic)
    kafka.send([json.dumps({"topic": topic, "key": 1, "value": 1, "timestamp": NOW_MS})] * 9, {})
    place = KafkaInput(kafka.address, topic.replace(".", "[.]"))
    ranges = [_all_of(partition) for partition in KafkaClient(place).partitions()]
    kafka.forget(topic, 0, 4)
    with pytest.raises(OffsetsLost, match="the next one has offset 0, the first available one 4"):
        read_few(place, ranges) if is_local else _raise_of_tasks(spark, place, ranges)


def test_a_file_that_workers_lack_is_no_reason_to_try_again(
    spark: "SparkSession", topics: KafkaInput
) -> None:
    """The error of a task names the setting and the property."""
    ranges = [_all_of(partition) for partition in KafkaClient(topics).partitions()]
    place = replace(topics, client={"security.protocol": "SSL", "ssl.ca.location": "missing.pem"})
    with pytest.raises(SourceError, match=r"`input\.kafka\.client`.*ssl\.ca\.location") as raised:
        _raise_of_tasks(spark, place, ranges)
    assert not raised.value.retryable


def _raise_of_tasks(spark: "SparkSession", place: KafkaInput, ranges: Sequence[TopicRange]) -> None:
    """Read messages in tasks as a cycle does, which raises what the tasks raise."""
    source = TopicsSource(DebeziumSettings(place), place)
    with source.reading():
        read_messages(spark, place, deal_ranges(ranges, 2), MessageDealer(2)).toArrow()


def _all_of(partition: TopicPartition) -> TopicRange:
    return first_messages(partition, partition.end_exclusive)
