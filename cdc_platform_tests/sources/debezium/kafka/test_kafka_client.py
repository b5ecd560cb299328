"""Errors of the client of Kafka where it cannot reach brokers."""

import sys
from dataclasses import replace
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException

from cdc_platform.errors import LibraryMissing, SettingError, SourceUnreachable
from cdc_platform.sources.debezium.kafka.kafka_client import KafkaClient
from cdc_platform.sources.debezium.kafka.topic_partition import TopicPartition
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform_tests.programs import free_port

NOBODY: Final = KafkaInput(f"127.0.0.1:{free_port()}", "shop[.].*", timeout_s=1.0)


def test_brokers_that_do_not_answer_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """The look ends in time, may be taken again, and leaves no line of the client for each of its tries."""
    with pytest.raises(SourceUnreachable, match=NOBODY.bootstrap_servers) as raised:
        KafkaClient(NOBODY).partitions()
    assert raised.value.retryable
    assert caplog.messages == []


class Moving(KafkaClient):
    """A client of a partition that has just got a new leader."""

    is_moving = True

    def _offsets(self, places: list[tuple[str, int, str]], _spec: Any) -> dict[tuple[str, int], int]:
        if self.is_moving:
            self.is_moving = False
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        return {(topic, number): 7 for topic, number, _ in places}


def test_a_partition_that_gets_a_new_leader_is_asked_again() -> None:
    """The plan of a backlog asks many times, and a new leader is no reason to end its cycle."""
    partition = TopicPartition("shop.a", 0, "ID", 0, 9)
    assert Moving(NOBODY).offsets_after([partition], 1) == {"shop.a/0": 7}


def test_a_property_that_is_refused_is_named() -> None:
    """Settings that only Java's client knows are refused."""
    with pytest.raises(SettingError, match=r"ssl\.ca\.location") as raised:
        KafkaClient(replace(NOBODY, client={"ssl.truststore.location": "trust.jks"}))
    assert raised.value.setting == "input.kafka.client"


def test_the_library_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the error says what to install."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(LibraryMissing, match=r"pip install 'cdc_platform\[kafka\]'"):
        KafkaClient(NOBODY)
