"""Errors of the client of Kafka where it cannot reach brokers."""

import sys
from dataclasses import replace
from typing import Final

import pytest

from cdc_platform.errors import LibraryMissing, SettingError, SourceUnreachable
from cdc_platform.sources.debezium.kafka.kafka_client import KafkaClient
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform_tests.programs import free_port

NOBODY: Final = KafkaInput(f"127.0.0.1:{free_port()}", "shop[.].*", timeout_s=1.0)


def test_brokers_that_do_not_answer_are_named() -> None:
    """The look ends in time, and may be taken again."""
    with pytest.raises(SourceUnreachable, match=NOBODY.bootstrap_servers) as raised:
        KafkaClient(NOBODY).partitions()
    assert raised.value.retryable


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
