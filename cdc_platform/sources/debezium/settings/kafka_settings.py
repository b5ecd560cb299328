"""Settings of Kafka topics."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from cdc_platform.errors import SettingError
from cdc_platform.model.base.declared_settings import Described, check_filled, check_host, check_range

TIMEOUT_S: Final = 30.0
"""Timeout of requests to brokers."""
RESERVED: Final = frozenset(
    {"bootstrap.servers", "enable.auto.commit", "auto.offset.reset", "enable.partition.eof"}
)
"""Properties of librdkafka that the platform sets."""
_ISOLATION: Final = "isolation.level"


@dataclass(frozen=True)
class KafkaInput:
    """Topics of Kafka."""

    bootstrap_servers: Annotated[str, Described("Brokers, as `HOST:PORT,HOST:PORT`.")]
    topics_pattern: Annotated[
        str,
        Described(
            "Regular expression for full names of topics, such as `shop[.].*`: the topics of all "
            "tables of the connector, and of its transactions."
        ),
    ]
    # Without a representation, because they may hold credentials and settings may appear in a traceback.
    client: Annotated[
        Mapping[str, str],
        Described(
            "Properties of Kafka's client librdkafka, such as `security.protocol`, `sasl.username` and "
            "`ssl.ca.location`. `isolation.level` is by default `read_committed`."
        ),
    ] = field(default_factory=dict, repr=False)
    max_messages: Annotated[
        int,
        Described(
            "Maximum number of new messages per cycle, over all partitions; up to `read_tasks` tasks "
            "decode them, or the process that runs the cycle if they are few."
        ),
    ] = 500_000
    transaction_patience_s: Annotated[
        float,
        Described(
            "Seconds, by the messages' own times, after which an incomplete transaction goes to "
            "quarantine, so that later ones can pass."
        ),
    ] = 600.0
    start_offsets: Annotated[
        Mapping[str, int],
        Described("Offset to begin at, per TOPIC/PARTITION; earlier messages are skipped."),
    ] = field(default_factory=dict)
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        check_filled(self, "input.kafka.")
        try:
            re.compile(self.topics_pattern)
        except re.error as error:
            problem = f"is not a regular expression ({error}): {self.topics_pattern!r}"
            raise SettingError("input.kafka.topics_pattern", problem) from error
        check_range(self, ("max_messages",), at_least=1, place="input.kafka.")
        check_range(self, ("transaction_patience_s", "timeout_s"), above=0, place="input.kafka.")
        for name, value in self.client.items():
            # librdkafka aborts the process if the consumer group is empty.
            if not isinstance(value, str) or not value:
                raise SettingError(f"input.kafka.client.{name}", f"must be a text, but is: {value!r}")
        for broker in self.brokers.split(","):
            address = broker.rpartition("://")[2]
            check_host("input.kafka.bootstrap_servers", address, "broker:9092 or broker:9092,broker:9093")
        reserved_names = sorted(RESERVED & self.client.keys())
        if reserved_names:
            raise SettingError(f"input.kafka.client.{reserved_names[0]}", "is set by the platform; remove it")
        for name, offset in self.start_offsets.items():
            _check_start(name, offset)

    def matches(self, topic: str) -> bool:
        """Return whether a topic matches the pattern."""
        return re.fullmatch(self.topics_pattern, topic) is not None

    @property
    def brokers(self) -> str:
        """The brokers without spaces and without empty entries, which some of Kafka's clients reject."""
        return ",".join(broker.strip() for broker in self.bootstrap_servers.split(",") if broker.strip())

    @property
    def isolation(self) -> str:
        """Kafka's isolation level; by default messages of aborted transactions are ignored."""
        return self.client.get(_ISOLATION, "read_committed")

    def client_properties(self) -> dict[str, str]:
        """Return the properties of librdkafka."""
        return {**self.client, "bootstrap.servers": self.brokers, _ISOLATION: self.isolation}


def _check_start(name: str, offset: object) -> None:
    setting = f"input.kafka.start_offsets.{name}"
    topic, _, partition = name.rpartition("/")
    if not topic or not partition.isdecimal():
        raise SettingError(setting, "must be named TOPIC/PARTITION")
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise SettingError(setting, f"must be an offset, 0 or more, but is: {offset!r}")
