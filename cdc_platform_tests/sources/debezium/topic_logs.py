"""Topics without a broker: logs of partitions, read as Spark hands them on."""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.stream.read_windows import ReadPlan, ReadWindow
from cdc_platform.sources.debezium.kafka.message_dealer import DEALT_MESSAGES
from cdc_platform.sources.debezium.kafka.messages import MESSAGES
from cdc_platform.sources.debezium.kafka.topic_partition import TopicPartition
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicRange, plan_ranges
from cdc_platform.sources.debezium.kafka.topics_reader import TopicsReading
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.splits.decoded_splits import LocalSplits
from cdc_platform.sources.debezium.splits.outcome import SPLIT, SPLIT_BLOCKS
from cdc_platform.sources.debezium.transactions.progress import PASSED, STATE
from cdc_platform_tests.sources.debezium.cycles import READ_MICROS

WINDOW: Final = ReadWindow("stream", READ_MICROS - 1, READ_MICROS)
Place = tuple[str, int]


@dataclass
class TopicLogs:
    """Logs of partitions, and a read progress of what has been read of them.

    Args:
        settings: of the stream.
        kafka: of its topics.
        splits: how many splits the messages of a cycle are dealt out to.
        rounds: how often the messages of each cycle were decoded.
        dealt: how many splits had messages, in each round.
    """

    settings: DebeziumSettings
    kafka: KafkaInput
    logs: dict[Place, list[dict[str, Any]]] = field(default_factory=dict)
    read_progress: dict[str, str] = field(default_factory=dict)
    splits: int = 1
    rounds: list[int] = field(default_factory=list)
    dealt: list[int] = field(default_factory=list)

    def append(self, message: Mapping[str, Any], partitions: int) -> Place:
        """Put a message behind those of the partition that its key has; return the partition."""
        key = json.dumps(message["key"]).encode()
        place = message["topic"], zlib.crc32(key) % (1 if "public" not in message["topic"] else partitions)
        log = self.logs.setdefault(place, [])
        headers = [
            {"key": name, "value": _encoded(item)} for name, item in (message["headers"] or {}).items()
        ]
        entry = {"topic": place[0], "partition": place[1], "offset": len(log), "headers": headers}
        entry |= {"micros": message["timestamp"] * 1000, "key": _encoded(message["key"])}
        log.append({**entry, "value": _encoded(message["value"])})
        return place

    def cycle(self, ends: Mapping[Place, int] | None = None) -> list[dict[str, Any]]:
        """Read what is new of the partitions, each up to an end; return the rows of events."""
        partitions = [
            TopicPartition(*place, "ID", 0, len(log) if ends is None else ends.get(place, 0))
            for place, log in sorted(self.logs.items())
        ]
        now_millis = READ_MICROS // 1000
        ranges = plan_ranges(partitions, self.read_progress, self.kafka, self._offsets_after, now_millis)
        return self._read(ranges, self._batches(ranges))

    def cycle_without_messages(self) -> list[dict[str, Any]]:
        """Read nothing."""
        return self._read((), ())

    def _read(self, ranges: Sequence[TopicRange], batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
        inputs: dict[str, Any] = {"ranges": tuple(ranges)}
        inputs |= {"state": self.read_progress.get(STATE), "passed": self.read_progress.get(PASSED)}
        reading = TopicsReading(self.settings, self.kafka, 1, ReadPlan((WINDOW,), inputs))
        rows = [row for batch in self._dealt(reading, list(batches)) for row in batch.to_pylist()]
        for row in rows:
            if row["kind"] == "file":
                self.read_progress[row["event"]["origin"]] = json.loads(row["event"]["metadata"])["version"]
        return [row for row in rows if row["kind"] == "data_change"]

    def _dealt(self, reading: TopicsReading, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the raw records of messages that are dealt out to splits, as Spark's tasks get them."""
        rounds: list[int] = []

        def decode(splits: int, state: str | None) -> LocalSplits:
            rounds.append(splits)
            blocks = pa.Table.from_batches(reading.dealer(splits)(batches), DEALT_MESSAGES)
            parts = [blocks.filter(pc.equal(blocks[SPLIT], number)).to_batches() for number in range(splits)]
            rows = [batch for part in parts for batch in reading.decoder(state)(part)]
            self.dealt.append(sum(any(batch.num_rows for batch in part) for part in parts))
            return LocalSplits(pa.Table.from_batches(rows, SPLIT_BLOCKS))

        cycle_rows = reading.read(decode, self.splits)
        self.rounds.append(len(rounds))
        for split in cycle_rows.splits:
            yield from cycle_rows.release(split)
        yield from cycle_rows.reports

    def _offsets_after(self, millis: int) -> dict[str, int]:
        """Return what a broker knows of the messages after a moment."""
        later = {
            f"{topic}/{partition}": next(
                (item["offset"] for item in log if item["micros"] > millis * 1000), None
            )
            for (topic, partition), log in self.logs.items()
        }
        return {origin: offset for origin, offset in later.items() if offset is not None}

    def _batches(self, ranges: Sequence[TopicRange]) -> Iterator[pa.RecordBatch]:
        for actual_range in ranges:
            rows = self.logs[actual_range.topic, actual_range.partition][
                actual_range.start : actual_range.end_exclusive
            ]
            yield from pa.Table.from_pylist(rows, MESSAGES).to_batches()


def _encoded(part: Any) -> bytes | None:
    """Return a part of a message as Kafka Connect's converter writes it."""
    return None if part is None else json.dumps(part, separators=(",", ":")).encode()
