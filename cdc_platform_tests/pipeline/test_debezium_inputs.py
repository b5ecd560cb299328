"""Debezium's messages in topics of a real Kafka: the tables of the database, and what topics can do."""

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from cdc_platform.errors import OffsetsLost, SourceUnreachable
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.sources.debezium.kafka import topics_reader
from cdc_platform.sources.debezium.kafka.kafka_client import KafkaClient
from cdc_platform.sources.debezium.kafka.topic_partition import TopicPartition
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform_tests.programs import free_port
from cdc_platform_tests.servers.kafka import MAX_MEMBERS, Broker, Group
from cdc_platform_tests.sources.debezium.captures_read import truth_of
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.debezium.pipelines import assert_equal, lines_of, make_pipeline, texts
from cdc_platform_tests.support.pipelines import log_rows, reading_by_turns, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

CAPTURE: Final = "transactions"
ACCOUNTS: Final = "cdc.public.accounts"
ENTRIES: Final = "cdc.public.entries"
TOPICS: Final = ("cdc.transaction", "cdc.message", ACCOUNTS, ENTRIES)


@pytest.fixture(autouse=True)
def _small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark's tasks share even few messages."""
    monkeypatch.setattr(topics_reader, "MIN_SPLIT_MESSAGES", 1)


class Connector:
    """Sends messages to topics of three partitions; one grows before the third delivery.

    The broker dies before the second delivery; from it on other consumers of the same group join and leave.
    """

    def __init__(self, broker: Broker, others: Group) -> None:
        self._broker, self._others = broker, others

    def place(self) -> KafkaInput:
        """Create the topics, and return the pipeline's settings for them."""
        for topic in TOPICS:
            self._broker.create(topic, 3 if "public" in topic else 1)
        client = {"group.id": self._others.name}
        return KafkaInput(self._broker.address, self._others.pattern, client)

    def send(self, lines: Sequence[str], number: int) -> None:
        """Send the messages of the delivery of this number, each to the partition of its key."""
        if number == 1:
            self._broker.stop()
            self._broker.start()
            self._others.start()
        if number == 2:
            self._broker.grow(ENTRIES, 4)
        self._broker.send(lines, {ACCOUNTS: 3, ENTRIES: 4 if number == 2 else 3})


@pytest.fixture
def others(kafka: Broker) -> Iterator[Group]:
    """Other consumers of the group."""
    group = Group(kafka, "shared", "cdc[.].*")
    yield group
    group.stop()


def test_a_transaction_waits_until_it_is_whole(
    spark: "SparkSession", session_lake: LakeSettings, kafka: Broker, others: Group
) -> None:
    """At every cut the books balance, wherever the messages were cut off, read by this process or by Spark.

    So it is while the group of the consumers of topics is rebalanced: partitions are taken by no group.
    """
    connector = Connector(kafka, others)
    pipeline = make_pipeline(session_lake, connector.place(), CAPTURE)
    lines = lines_of(CAPTURE)
    for number, (begun, end) in enumerate(itertools.pairwise((0, 25, 41, len(lines)))):
        connector.send(lines[begun:end], number)
        pipeline = sync(reading_by_turns(pipeline, number), spark)
        transactions = {row["transaction_id"] for row in log_rows(pipeline)}
        whole = {name for name in transactions if name and _is_whole(pipeline, name)}
        assert {name for name in transactions if name} - whole <= {
            row["transaction_id"] for row in log_rows(pipeline) if row["records_in_transaction"] == 1
        }
    others.stop()
    assert others.rebalances > MAX_MEMBERS
    assert_equal(pipeline, CAPTURE)
    assert failed_checks(pipeline, spark) == {}


def _is_whole(pipeline: Pipeline, transaction: str) -> bool:
    rows = [row for row in log_rows(pipeline) if row["transaction_id"] == transaction]
    return bool(len(rows) == rows[0]["records_in_transaction"])


def test_a_compacted_topic_and_one_whose_messages_were_deleted(
    spark: "SparkSession", session_lake: LakeSettings, kafka: Broker
) -> None:
    """Gaps between offsets leave no gaps in the rows; a loss is reported, and skipped on demand only."""
    topic, lines = "compacted.public.accounts", _renamed(ACCOUNTS, "compacted.public.accounts")
    kafka.create(topic, 1, cleanup_policy="compact,delete", segment_ms="50", min_cleanable_dirty_ratio="0.01")
    kafka.send(lines, {})
    _wait_for_gaps(kafka, topic, json.loads(lines[-1]))
    place = KafkaInput(kafka.address, "compacted[.].*")
    truth = truth_of(CAPTURE)["public.accounts"]
    for turn in (1, 0):
        made = make_pipeline(session_lake, place, CAPTURE, has_transaction_topic=False)
        pipeline = reading_by_turns(made, turn)
        assert [table.name for table in pipeline.source.list_tables()] == ["public.accounts"]
        assert run_cycle(pipeline, spark).read.is_local == (turn == 0)
        assert texts(truth.rows, truth) == texts(rows_of(pipeline, "public.accounts"), truth)
    kafka.send(lines[-1:] * 3, {})
    end = _end_of(pipeline)
    kafka.forget(topic, 0, end - 1)
    with pytest.raises(OffsetsLost, match=f"{topic}, partition 0.*the first available one {end - 1}"):
        run_cycle(pipeline, spark)
    source: Any = pipeline.settings.source
    skipping = replace(place, start_offsets={f"{topic}/0": end - 1})
    settings = replace(pipeline.settings, source=replace(source, input=skipping))
    assert run_cycle(open_pipeline(settings), spark).read.committed
    assert texts(truth.rows, truth) == texts(rows_of(pipeline, "public.accounts"), truth)


@pytest.mark.parametrize("turn", [0, 1])
def test_brokers_that_go_away_within_a_cycle_are_named(
    spark: "SparkSession",
    session_lake: LakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    turn: int,
) -> None:
    """A broker's failure is an error of the source in either way of reading, and the cycle is tried again."""
    place = KafkaInput(f"127.0.0.1:{free_port()}", "cdc[.].*", timeout_s=1.0)
    partitions = [TopicPartition(ACCOUNTS, 0, "1", 0, 5)]
    monkeypatch.setattr(KafkaClient, "partitions", lambda _client: partitions)
    monkeypatch.setattr(KafkaClient, "beginnings", lambda _client, _most: iter(()))
    pipeline = reading_by_turns(make_pipeline(session_lake, place, CAPTURE), turn)
    named = f"{place.bootstrap_servers}: no message came; .* failed"
    with pytest.raises(SourceUnreachable, match=named) as raised:
        run_cycle(pipeline, spark)
    assert len(str(raised.value)) < 1000


def _renamed(topic: str, name: str) -> list[str]:
    """Return a topic's messages for a topic of another name, a second apart."""
    messages = [json.loads(line) for line in lines_of(CAPTURE) if f'"topic":"{topic}"' in line]
    return [_shifted({**settings, "topic": name}, number) for number, settings in enumerate(messages)]


def _shifted(settings: dict[str, Any], seconds: int) -> str:
    return json.dumps({**settings, "timestamp": settings["timestamp"] + 1000 * seconds})


def _end_of(pipeline: Pipeline) -> int:
    source: Any = pipeline.source
    (partition,) = source.client.partitions()
    return int(partition.end_exclusive)


def _wait_for_gaps(kafka: Broker, topic: str, last: dict[str, Any]) -> None:
    """Send the last message again and again, so that segments end, until the broker has compacted them."""
    give_up_at = time.monotonic() + 120
    for number in itertools.count(1):
        offsets = _offsets_of(kafka, topic)
        if len(offsets) <= offsets[-1]:
            return
        assert time.monotonic() < give_up_at, f"not compacted: {offsets}"
        kafka.send([_shifted(last, number)], {})
        time.sleep(0.3)


def _offsets_of(kafka: Broker, topic: str) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": kafka.address, "group.id": "look", "enable.partition.eof": True}
    )
    consumer.assign([Place(topic, 0, 0)])
    offsets = list[int]()
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                return offsets
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)
    finally:
        consumer.close()
