"""A private Kafka: one broker that is its own controller, in a separate folder, on free ports."""

import json
import os
import socket
import subprocess
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from cdc_platform_tests.java_options import SHORT_LIVED
from cdc_platform_tests.programs import free_port
from cdc_platform_tests.servers.jars import require_jars

BROKER: Final = "org.apache.kafka:kafka_2.13:4.3.1"
CONNECTOR: Final = (
    # The repository that tests have may lack the token provider of the connector's version.
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
"""Not drawn: of 64 random ones, one begins with a dash, which the tool takes for an option."""
STARTED_WITHIN_S: Final = 120.0
ANSWERED_WITHIN_S: Final = 60.0
QUEUED: Final = 50_000
"""Messages that a producer holds; it refuses twice as many."""
MEMBER_S: Final = 0.5
"""After so long another consumer joins a group that is rebalanced."""
MAX_MEMBERS: Final = 3
PROPERTIES: Final = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
log.retention.ms=-1
log.message.timestamp.after.max.ms=9223372036854775807
log.cleaner.backoff.ms=100
log.initial.task.delay.ms=100
"""


@dataclass
class Broker:
    """A broker.

    Args:
        folder: for its data, its configuration and what it says.
        classpath: its jars.
        port: on loopback.
    """

    folder: Path
    classpath: str
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self.port}"

    def format(self) -> None:
        """Make the folder of a cluster that has no topics."""
        text = PROPERTIES.format(port=self.port, control=free_port(), folder=self.folder)
        (self.folder / "server.properties").write_text(text, encoding="utf-8")
        tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "--standalone", "-c"]
        subprocess.run(
            self._java(*tool), check=True, capture_output=True, timeout=120, stdin=subprocess.DEVNULL
        )

    def start(self) -> None:
        """Start it, and return when it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._java("kafka.Kafka"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        give_up_at = time.monotonic() + STARTED_WITHIN_S
        while not _answers(self.port):
            output = (self.folder / "log").read_text(errors="replace")[-2000:]
            assert self.process.poll() is None, f"Kafka has ended:\n{output}"
            assert time.monotonic() < give_up_at, f"Kafka does not answer:\n{output}"
            time.sleep(0.1)

    def stop(self) -> None:
        """End it as a crash does; what it has acknowledged is in its files."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()
            self.process = None

    def create(self, topic: str, partitions: int = 1, **properties: str) -> None:
        """Create a topic."""
        config = {name.replace("_", "."): value for name, value in properties.items()}
        self._ask(lambda admin: admin.create_topics([NewTopic(topic, partitions, 1, config=config)]))

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic so many partitions."""
        self._ask(lambda admin: admin.create_partitions([NewPartitions(topic, partitions)]))

    def remove(self, topic: str) -> None:
        """Delete a topic."""
        self._ask(lambda admin: admin.delete_topics([topic]))

    def forget(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete the first messages of a partition."""
        self._ask(lambda admin: admin.delete_records([Place(topic, partition, before_offset)]))

    def send(self, lines: Sequence[str], partitions: Mapping[str, int]) -> None:
        """Send messages, each a line of a capture, as a connector does: a key has its partition.

        Args:
            lines: JSON objects with topic, key, value, headers and timestamp.
            partitions: how many each topic has; one where it is not named.
        """
        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 5})
        for number, line in enumerate(lines, start=1):
            if number % QUEUED == 0:
                producer.flush(ANSWERED_WITHIN_S)
            message = json.loads(line)
            key = _encoded(message["key"])
            producer.produce(
                message["topic"],
                value=_encoded(message["value"]),
                key=key,
                partition=zlib.crc32(key or b"") % partitions.get(message["topic"], 1),
                headers=[(name, _encoded(value)) for name, value in (message.get("headers") or {}).items()],
                timestamp=message["timestamp"],
            )
        assert producer.flush(ANSWERED_WITHIN_S) == 0

    def send_octets(self, topic: str, messages: Sequence[tuple[bytes, bytes]]) -> None:
        """Send keys and values, as they are, to the only partition of a topic."""
        producer = Producer({"bootstrap.servers": self.address, "message.max.bytes": 2**23})
        for key, value in messages:
            producer.produce(topic, value=value, key=key, partition=0)
        assert producer.flush(ANSWERED_WITHIN_S) == 0

    def _java(self, *arguments: str) -> list[str]:
        command = ["java", "-Xmx256m", *SHORT_LIVED.split(), "-cp", self.classpath, *arguments]
        return [*command, str(self.folder / "server.properties")]

    def _ask(self, ask: Callable[[AdminClient], Mapping[Any, Any]]) -> None:
        # The client has to outlive its answers.
        admin = AdminClient({"bootstrap.servers": self.address})
        for future in ask(admin).values():
            future.result(ANSWERED_WITHIN_S)


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """Run a private broker in a folder."""
    jars = require_jars(BROKER, with_dependencies=True)
    folder.mkdir(parents=True)
    broker = Broker(folder, os.pathsep.join(jars))
    broker.format()
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@dataclass
class Group:
    """Consumers of one group that come and go, so that it is rebalanced again and again; they commit offsets.

    Args:
        broker: where the topics are.
        name: of the group.
        pattern: regular expression of the topics.
        rebalances: how often partitions were given to a member.
    """

    broker: Broker
    name: str
    pattern: str
    rebalances: int = 0
    _ended: Event = field(default_factory=Event)
    _thread: Thread | None = None

    def start(self) -> None:
        """Let the first member come."""
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let all members go."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(ANSWERED_WITHIN_S)

    def _run(self) -> None:
        members = deque[Consumer]()
        while not self._ended.is_set():
            members.append(self._join())
            leave_at = time.monotonic() + MEMBER_S
            while time.monotonic() < leave_at and not self._ended.is_set():
                for member in members:
                    member.poll(0.05)
            if len(members) == MAX_MEMBERS:
                members.popleft().close()
        for member in members:
            member.close()

    def _join(self) -> Consumer:
        member = Consumer(
            {
                "bootstrap.servers": self.broker.address,
                "group.id": self.name,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
                "heartbeat.interval.ms": 100,
            }
        )
        member.subscribe([f"^{self.pattern}"], on_assign=self._count)
        return member

    def _count(self, _member: Consumer, _given: Sequence[Place]) -> None:
        self.rebalances += 1


def _encoded(part: Any) -> bytes | None:
    """Return a part of a message as Kafka Connect's converter writes it, without spaces."""
    if part is None:
        return None
    if isinstance(part, str):
        return part.encode()
    return json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
