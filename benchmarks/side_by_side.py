"""One Kafka topic into one Iceberg table: the platform, a job of Structured Streaming, and Flink SQL.

Both peers are what their users write by hand. The job of Structured Streaming takes the newest event of each
key in a batch, keeps stored values where an event lacks them, and merges by MERGE INTO. Flink reads
`debezium-json` into a table in upsert mode (equality deletes); it refuses updates without their row before,
so its topic has whole rows before and after, as with REPLICA IDENTITY FULL. The platform reads both topics.

A fifth of the events of the first topic lack the large value, and one in a thousand updates changes the key.
The end of the topic is sent twice, as a connector does after a restart. Each candidate's table is compared
with the truth. The seconds of a read of the whole table by Spark are part of each candidate's.
Needs Maven for Flink.

python -m benchmarks.side_by_side
"""

import argparse
import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from benchmarks.engines import FLINK, run_program
from benchmarks.inputs.events import change_message
from benchmarks.measure.harness import Report, arguments, must_equal
from benchmarks.measure.tables import PEER_SQL, open_session
from benchmarks.measure.usage import Meter
from benchmarks.unavailable import TYPES, Rows, wrong_rows
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.spark.launch.spark_settings import SparkSettings
from cdc_platform_tests.servers.jars import fetch_jars
from cdc_platform_tests.servers.kafka import CONNECTOR, broker

PARTITIONS: Final = 4
BATCH_MESSAGES: Final = 500_000
"""Of a cycle and of a micro-batch."""
FIRST_LSN: Final = 1_000_000
SENT_MS: Final = 1_700_000_000_000
EVENTS_A_KEY_CHANGE: Final = 1_000
REDELIVERED: Final = 0.01
LACKING, WHOLE = "lacking", "whole"
TABLE: Final = "items"
PLATFORM, STREAMING, SQL = "platform", "Structured Streaming", "Flink SQL"
MESSAGE: Final = (
    "struct<op:string,before:struct<id:bigint>,after:struct<id:bigint,n:bigint,big:string>,"
    "source:struct<lsn:bigint>>"
)
TARGET: Final = PEER_SQL.format(name="{name}", version=2).replace(
    "owner STRING, balance BIGINT, visits BIGINT, status STRING, updated_at TIMESTAMP", "n BIGINT, big STRING"
)
MERGE: Final = f"""
    MERGE INTO {{table}} t USING newest s ON t.id = s.id
    WHEN MATCHED AND s.op = 'd' THEN DELETE
    WHEN MATCHED THEN UPDATE SET t.n = s.n, t.big = IF(s.big = '{DEFAULT_PLACEHOLDER}', t.big, s.big)
    WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT (id, n, big) VALUES (s.id, s.n, s.big)
"""
FLINK_STATEMENTS: Final = (
    "CREATE CATALOG lake WITH ('type' = 'iceberg', 'catalog-type' = 'hadoop', 'warehouse' = '{warehouse}')",
    "CREATE DATABASE IF NOT EXISTS lake.side",
    """CREATE TABLE lake.side.items_{{round}} (id BIGINT, n BIGINT, big STRING, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('format-version' = '2', 'write.upsert.enabled' = 'true')""",
    """CREATE TEMPORARY TABLE events (id BIGINT, n BIGINT, big STRING) WITH ('connector' = 'kafka',
    'topic' = '{topic}', 'properties.bootstrap.servers' = '{address}', 'format' = 'debezium-json',
    'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')""",
    "INSERT INTO lake.side.items_{{round}} SELECT id, n, big FROM events",
)


@dataclass
class Events:
    """Rows of a snapshot, and updates of them; `truth` is what they make of the rows.

    Args:
        rows: of the snapshot.
        updates: how many follow, some of which change the key.
        share: of the updates that do not touch the large value, which then is not sent.
        is_full: whether all values are sent, and the row before.
        seed: of all that is drawn.
    """

    rows: int
    updates: int
    share: float
    is_full: bool
    seed: int
    truth: Rows = field(default_factory=dict)

    @property
    def topic(self) -> str:
        """Its topic's name."""
        return f"{WHOLE if self.is_full else LACKING}.public.{TABLE}"

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages in their order."""
        dice = random.Random(self.seed)  # noqa: S311  a benchmark's input, not a secret
        for key in range(self.rows):
            self.truth[key] = (0, _text(dice))
            yield self._message("r", key, None, self.truth[key], FIRST_LSN)
        keys = list(self.truth)
        for number in range(1, self.updates + 1):
            place, lsn = dice.randrange(self.rows), FIRST_LSN + number * 100
            key, before = keys[place], self.truth[keys[place]]
            is_touched = dice.random() >= self.share
            after = (number, _text(dice) if is_touched else before[1])
            sent = after if is_touched or self.is_full else (number, DEFAULT_PLACEHOLDER)
            if number % EVENTS_A_KEY_CHANGE:
                yield self._message("u", key, before, sent, lsn)
            else:
                keys[place] = self.rows + number
                yield from self._key_change(key, keys[place], before, sent, lsn)
                del self.truth[key]
            self.truth[keys[place]] = after

    def _key_change(
        self, old: int, new: int, before: tuple[int, str], after: tuple[int, str], lsn: int
    ) -> Iterator[dict[str, Any]]:
        deleted = self._message("d", old, before, None, lsn)
        yield {**deleted, "headers": {"__debezium.newkey": {"id": new}}}
        yield {**deleted, "value": None}
        yield {**self._message("c", new, None, after, lsn), "headers": {"__debezium.oldkey": {"id": old}}}

    def _message(
        self, op: str, key: int, before: tuple[int, str] | None, after: tuple[int, str] | None, lsn: int
    ) -> dict[str, Any]:
        message = change_message(op, TABLE, {"id": key}, {}, lsn, SENT_MS + lsn)
        value = message["value"]
        value["after"] = None if after is None else _row(key, after)
        if before is not None and self.is_full:
            value["before"] = _row(key, before)
        elif op == "d":
            value["before"] = {"id": key, "n": None, "big": None}
        return {**message, "topic": self.topic, "timestamp": SENT_MS + lsn}


def _text(dice: random.Random) -> str:
    return f"{dice.getrandbits(64):016x}" * 12


def _row(key: int, values: tuple[int, str]) -> dict[str, Any]:
    return {"id": key, "n": values[0], "big": values[1]}


@dataclass(frozen=True)
class Bench:
    """The common settings of all candidates."""

    spark: SparkSession
    lake: LakeSettings
    address: str
    meter_folder: Path
    report: Report

    def measure(self, name: str, events: Events, run: Callable[[], DataFrame]) -> None:
        """Run a candidate, which returns its table, read the table, and report both together."""
        meter = Meter(self.spark, self.meter_folder)
        meter.begin()
        frame = run()
        meter.end(name)
        used = meter.steps[name]
        self.note(name, events, frame, used.wall_s, sum(used.processor_s.values()))

    def note(self, name: str, events: Events, frame: DataFrame, wall_s: float, used_s: float) -> None:
        """Read the table of a candidate, and report it; the platform's has to be right."""
        meter = Meter(self.spark, self.meter_folder)
        meter.begin()
        frame.selectExpr("count(*)", "sum(id)", "sum(n)", "sum(hash(big))").collect()
        meter.end(name)
        reading_s = sum(meter.steps[name].processor_s.values())
        wrong = wrong_rows(frame, events.truth)
        self.report.note(
            f"{name}, {events.topic}",
            (events.rows + events.updates) / (used_s + reading_s),
            "changes/core s",
            cpu_s=round(used_s, 1),
            reading_cpu_s=round(reading_s, 2),
            wall_s=round(wall_s, 1),
            wrong_rows=wrong,
        )
        if name == PLATFORM:
            must_equal(0, wrong, "wrong rows of the platform")


def by_platform(bench: Bench, events: Events, number: int) -> Callable[[], DataFrame]:
    """Return the candidate that is the platform."""
    name = f"{events.topic.partition('.')[0]}_{number}"
    source = DebeziumSettings(
        KafkaInput(bench.address, events.topic.replace(".", "[.]"), max_messages=BATCH_MESSAGES),
        columns={f"public.{TABLE}": TYPES},
    )
    pipeline = open_pipeline(PipelineSettings(name, source, bench.lake))

    def run() -> DataFrame:
        while run_cycle(pipeline, bench.spark).read.committed:
            pass
        return bench.spark.table(pipeline.lake.spark_table(f"public.{TABLE}"))

    return run


def by_streaming(bench: Bench, events: Events, number: int) -> Callable[[], DataFrame]:
    """Return the candidate that is a job of Structured Streaming."""
    table = f"lake.side.streamed_{number}"
    bench.spark.sql(TARGET.format(name=table))
    newest = Window.partitionBy("id").orderBy(F.col("lsn").desc(), F.col("offset").desc())

    def merge(batch: DataFrame, _number: int) -> None:
        value = F.from_json(F.col("value").cast("string"), MESSAGE).alias("m")
        changes = (
            batch.where("value IS NOT NULL")
            .select(value, "offset")
            .select(
                F.coalesce("m.after.id", "m.before.id").alias("id"),
                "m.after.n",
                "m.after.big",
                "m.op",
                "m.source.lsn",
                "offset",
            )
        )
        ranked = changes.withColumn("place", F.row_number().over(newest)).where("place = 1")
        ranked.createOrReplaceTempView("newest")
        batch.sparkSession.sql(MERGE.format(table=table))

    def run() -> DataFrame:
        stream = (
            bench.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bench.address)
            .option("subscribe", events.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", BATCH_MESSAGES)
            .load()
        )
        query = (
            stream.writeStream.foreachBatch(merge)
            .option("checkpointLocation", str(bench.meter_folder.parent / f"checkpoint_{number}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return bench.spark.table(table)

    return run


def run_flink(bench: Bench, events: Events, folder: Path, rounds: int) -> None:
    """Run Flink in a separate process, and report its last round."""
    seconds, warehouse = folder / "seconds", folder / "flink"
    filled = {"warehouse": warehouse.as_uri(), "topic": events.topic, "address": bench.address}
    statements = [statement.format(**filled) for statement in FLINK_STATEMENTS]
    run_program(FLINK, "3g", "Upsert.java", seconds, str(rounds), *statements)
    wall_s, used_s = map(float, seconds.read_text(encoding="utf-8").splitlines()[-1].split())
    frame = bench.spark.read.format("iceberg").load(str(warehouse / "side" / f"items_{rounds}"))
    bench.note(SQL, events, frame, wall_s, used_s)


def main() -> None:
    """Run all candidates, and report the last round of each."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--events", type=int, default=1_000_000, help="updates")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the table before them")
    parser.add_argument("--share", type=float, default=0.2, help="share of the updates that lack the value")
    parser.add_argument("--rounds", type=int, default=2, help="rounds; the last one counts")
    options = parser.parse_args()
    report, folder = Report("side_by_side", options), options.work / "side_by_side"
    shutil.rmtree(folder, ignore_errors=True)
    lake = LakeSettings(path=str(folder / "lake"))
    topics = [
        Events(options.rows, options.events, options.share, is_full, options.seed)
        for is_full in (False, True)
    ]
    with ExitStack() as stack:
        spark = stack.enter_context(open_session(SparkSettings(driver_memory="3g"), lake))
        for jar in fetch_jars(CONNECTOR, with_dependencies=False):
            spark.sql(f"ADD JAR '{jar}'")
        kafka = stack.enter_context(broker(folder / "broker"))
        for events in topics:
            lines = [json.dumps(message) for message in events.messages()]
            kafka.create(events.topic, PARTITIONS)
            kafka.send(lines, {events.topic: PARTITIONS})
            kafka.send(lines[-int(len(lines) * REDELIVERED) :], {events.topic: PARTITIONS})
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.side")
        bench = Bench(spark, lake, kafka.address, folder / "lake", report)
        partial_events, whole = topics
        run_all(bench, partial_events, whole, options)
        run_flink(bench, whole, folder, options.rounds)


def run_all(bench: Bench, partial_events: Events, whole: Events, options: argparse.Namespace) -> None:
    """Run the candidates of this process by turns."""
    for number in range(1, options.rounds + 1):
        print(f"round {number} of {options.rounds}:", flush=True)
        bench.measure(STREAMING, partial_events, by_streaming(bench, partial_events, number))
        bench.measure(PLATFORM, partial_events, by_platform(bench, partial_events, number))
        bench.measure(PLATFORM, whole, by_platform(bench, whole, number))


if __name__ == "__main__":
    main()
