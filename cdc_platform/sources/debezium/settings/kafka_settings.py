"""Settings of Kafka topics, and of the two clients that read them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from cdc_platform.errors import SettingError
from cdc_platform.model.base.declared_settings import Described, check_filled, check_host, check_range

TIMEOUT_S: Final = 30.0
"""Timeout of requests to brokers."""
SPARK_PREFIX: Final = "kafka."
"""Prefix of options that Spark's source passes on to Kafka's client."""
OURS: Final = frozenset(
    {
        *("assign", "subscribe", "subscribePattern", "startingOffsets", "endingOffsets", "includeHeaders"),
        *("kafka.key.deserializer", "kafka.value.deserializer", "kafka.interceptor.classes"),
        *("kafka.auto.offset.reset", "kafka.enable.auto.commit", "kafka.bootstrap.servers"),
    }
)
"""Options of Spark's source that the platform sets, or that the source rejects."""
_SHARED: Final = frozenset(
    {
        *("security.protocol", "sasl.mechanism", "sasl.kerberos.service.name", "client.id"),
        *("ssl.endpoint.identification.algorithm", "isolation.level", "client.dns.lookup"),
    }
)
"""Properties with the same name and meaning in Java's client and librdkafka."""
_JAAS: Final = "sasl.jaas.config"
_LOGIN: Final = re.compile(r"\b(username|password)\s*=\s*\"((?:[^\"\\]|\\.)*)\"")


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
    options: Annotated[
        Mapping[str, str],
        Described(
            "Further options of Spark's source. Options of Kafka's client begin with `kafka.`, such "
            "as `kafka.security.protocol`; `kafka.isolation.level`, by default `read_committed`, "
            "applies to both clients."
        ),
    ] = field(default_factory=dict, repr=False)
    client: Annotated[
        Mapping[str, str],
        Described(
            "Properties of librdkafka, which lists topics and offsets and reads small numbers of "
            "messages, if its names differ from those of Java's client, such as `ssl.ca.location`. "
            "Protocol, mechanism, and name and password of `kafka.sasl.jaas.config` come from "
            "`options`."
        ),
    ] = field(default_factory=dict, repr=False)
    max_messages: Annotated[
        int,
        Described(
            "Maximum number of new messages per cycle, over all partitions; up to `read_tasks` tasks "
            "decode them, or the process that runs the cycle if they are few."
        ),
    ] = 100_000
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
        for broker in self.brokers.split(","):
            address = broker.rpartition("://")[2]
            check_host("input.kafka.bootstrap_servers", address, "broker:9092 or broker:9092,broker:9093")
        self._check_options()
        for name, offset in self.start_offsets.items():
            _check_start(name, offset)

    def _check_options(self) -> None:
        reserved = sorted(OURS & self.options.keys())
        if reserved:
            raise SettingError(f"input.kafka.options.{reserved[0]}", "is set by the platform; remove it")
        for name in self.options:
            # Spark ignores unknown options; its own options have capital letters.
            if "." in name and name == name.lower() and not name.startswith(SPARK_PREFIX):
                problem = f"is an option of Kafka's client: write `{SPARK_PREFIX}{name}`"
                raise SettingError(f"input.kafka.options.{name}", problem)

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
        return self.options.get(f"{SPARK_PREFIX}isolation.level", "read_committed")

    def spark_options(self) -> dict[str, str]:
        """Return the options of Spark's source, except topics and offsets."""
        return {
            **self.options,
            f"{SPARK_PREFIX}bootstrap.servers": self.brokers,
            f"{SPARK_PREFIX}isolation.level": self.isolation,
            "includeHeaders": "true",
            # Lost messages are reported, never skipped.
            "failOnDataLoss": "true",
        }

    def client_properties(self) -> dict[str, str]:
        """Return the properties of librdkafka, with the name and password of a login from Java's."""
        properties = {
            name.removeprefix(SPARK_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(SPARK_PREFIX)
        }
        login = {f"sasl.{name}": _plain(value) for name, value in _LOGIN.findall(properties.get(_JAAS, ""))}
        shared = {name: value for name, value in properties.items() if name in _SHARED}
        return {"bootstrap.servers": self.brokers, **shared, **login, **self.client}


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _check_start(name: str, offset: object) -> None:
    setting = f"input.kafka.start_offsets.{name}"
    topic, _, partition = name.rpartition("/")
    if not topic or not partition.isdecimal():
        raise SettingError(setting, "must be named TOPIC/PARTITION")
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise SettingError(setting, f"must be an offset, 0 or more, but is: {offset!r}")
