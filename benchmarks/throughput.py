"""Changes a second from a source to a published cut, by step, with what each step costs.

A separate pipeline reads the same changes in each round, until nothing is left to read; the first round
warms up. Its steps are those of a cycle, where reading is parted into what tasks decode and write, and the
commit of their files. Processor seconds are the measure to compare: wall seconds depend on what else the
machine does.
"""

import argparse
import gc
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks.datastream import make_event, write_files
from benchmarks.inputs.datastream_cases import BALANCES, CASES, EVENTS_A_FILE, PLAIN
from benchmarks.inputs.events import with_schema_blocks, with_transactions
from benchmarks.measure.harness import Report, arguments, must_equal
from benchmarks.measure.tables import open_session
from benchmarks.measure.usage import DRIVER, JVM, WORKERS, Meter
from benchmarks.partitions import open_stream
from benchmarks.unavailable import TYPES, Changes, wrong_rows
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits import writes
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.model.stream.source_capabilities import SourceSettings
from cdc_platform.pipeline.histories.history_build import extend_histories
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform.pipeline.reading import read as reading
from cdc_platform.simulator.history.bank import OPENING_BALANCE
from cdc_platform.simulator.wire.simulator_settings import SimulatorSettings
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.debezium.files.decoding import FileSplitDecoder, event_files
from cdc_platform.sources.debezium.files.segments import Segment
from cdc_platform.sources.debezium.files.splits import FileSplit
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput, Input
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.splits.outcome import OUTCOME, SplitOutcome
from cdc_platform.sources.debezium.splits.split_reader import SplitContext
from cdc_platform.sources.debezium.transactions.transactions import EVENTS
from cdc_platform.sources.workers import prepare_reader
from cdc_platform.spark.launch.spark_settings import SparkSettings
from cdc_platform_tests.servers.kafka import broker

TABLE: Final = "public.items"
BLOCK_TYPES: Final = {"id": "int64", "n": "int64", "big": "string"}
"""Types of the same columns in schema blocks."""
TOPIC: Final = "bench.public.items"
TRANSACTIONS_TOPIC: Final = "bench.transaction"
PARTITIONS: Final = 4
SENT_MS: Final = 1_700_000_000_000
MESSAGES_A_MS: Final = 20
"""As many as a connector sends of a snapshot."""
RATE: Final = 1_000.0
"""Transactions a second of the simulator, each of about three changes."""
CHANGES_A_TRANSACTION: Final = 3
BEGUN_MICROS: Final = 100_000
"""Of a stream, what a pipeline has read before."""
PATIENCE_S: Final = 600.0
DECODING: Final = "debezium-decoding"
"""Not a run to a cut: the part of it that Python's workers do, without Spark."""
GOAL, LEAST = 20_000, 15_000
"""Changes a core second from source to published cut."""
MAX_SERIAL: Final = 0.1
SPLIT_EVENTS: Final = 20_000
ROUNDS_ALONE: Final = 5


@dataclass(frozen=True)
class Bench:
    """A source with changes.

    Args:
        source: settings of the pipelines that read it.
        changes: how many there are; None where the log shows it.
        verify: raises unless the tables of a pipeline are right.
        begin_micros: where a pipeline has read up to before, so that it knows the partitions: a stream begins
            with one query, which a task follows through all partitions that come up.
    """

    source: SourceSettings
    changes: int | None
    verify: Callable[[SparkSession, Pipeline], None]
    begin_micros: int | None = None


@contextmanager
def spanner(options: argparse.Namespace, _spark: SparkSession) -> Iterator[Bench]:
    """Provide the simulator's bank, which has worked for some time."""
    seconds = options.changes / RATE / CHANGES_A_TRANSACTION
    simulated = argparse.Namespace(work=options.work, seed=options.seed, rate=RATE, seconds=seconds)

    def verify(spark: SparkSession, pipeline: Pipeline) -> None:
        table = pipeline.lake.spark_table("accounts")
        total = spark.sql(f"SELECT sum(balance) FROM {table}").collect()[0][0]
        must_equal(SimulatorSettings().accounts * OPENING_BALANCE, total, "sum of balances")

    with open_stream(simulated, 10) as stream:
        # Where other work keeps the simulator from answering, no partition is stuck.
        source = replace(stream.source.settings, stuck_after_s=PATIENCE_S)
        yield Bench(source, None, verify, stream.windows[0].start_exclusive_micros + BEGUN_MICROS)


@contextmanager
def datastream(options: argparse.Namespace, _spark: SparkSession) -> Iterator[Bench]:
    """Provide files of MySQL's events, or of those of a case."""
    case, changes, sound_changes = options.case, options.changes, 0
    files = -(-changes // EVENTS_A_FILE)
    folder = options.work / f"datastream_{changes}_{files}_{case}"
    write_files(folder, changes, files, case)
    keys = max(1, changes // 4)
    final: dict[int, int] = {}
    for number in range(changes):
        event = make_event(number, keys, case)
        if (event["payload"] or {}).get("id", number) is None:
            continue
        sound_changes += 1
        final[number % keys] = number
        if event["source_metadata"]["is_deleted"]:
            del final[number % keys]

    def verify(spark: SparkSession, pipeline: Pipeline) -> None:
        balance = f"CAST({BALANCES.get(case, 'balance')} AS BIGINT) AS balance"
        names = (pipeline.lake.spark_table(table.name) for table in pipeline.tables)
        rows = " UNION ALL ".join(f"SELECT {balance} FROM {name}" for name in names)
        row = spark.sql(f"SELECT count(*), coalesce(sum(balance), 0) FROM ({rows})").collect()[0]
        must_equal((len(final), sum(final.values())), tuple(row), "rows and their sum")

    yield Bench(DatastreamSettings(str(folder), table_name="{table}"), sound_changes, verify)


def _debezium_changes(options: argparse.Namespace) -> tuple[Path, Callable[[SparkSession, Pipeline], None]]:
    """Write rows of a snapshot and updates of them into one file, and return it with what verifies tables."""
    rows = max(1, options.changes // 10)
    changes = Changes(rows, options.changes - rows, 0.0, options.seed)
    folder = options.work / "throughput_inputs"
    shutil.rmtree(folder, ignore_errors=True)
    file = folder / "1.jsonl"
    folder.mkdir(parents=True)
    with file.open("w", encoding="utf-8") as lines:
        lines.writelines(_lines(changes, options))

    def verify(spark: SparkSession, pipeline: Pipeline) -> None:
        frame = spark.table(pipeline.lake.spark_table(TABLE))
        must_equal(0, wrong_rows(frame, changes.truth), "wrong rows")

    return file, verify


def _lines(changes: Changes, options: argparse.Namespace) -> Iterator[str]:
    """Yield the lines with all values, as compact as Kafka Connect's converter writes them if they change."""
    lines = (whole for whole, _ in changes.lines())
    if not (options.transactions or options.schema_blocks):
        yield from lines
        return
    messages: Iterator[dict[str, Any]] = map(json.loads, lines)
    if options.transactions:
        messages = with_transactions(messages, TRANSACTIONS_TOPIC, TABLE, options.transactions)
    for message in messages:
        is_change = message["topic"] == TOPIC
        in_blocks = options.schema_blocks and is_change
        parts = with_schema_blocks(message, BLOCK_TYPES) if in_blocks else message
        yield json.dumps(parts, separators=(",", ":")) + "\n"


def _settings(place: Input, options: argparse.Namespace) -> DebeziumSettings:
    """Return the settings, with the types that no schema block declares."""
    types = {} if options.schema_blocks else {TABLE: TYPES}
    return DebeziumSettings(place, columns=types, has_transaction_topic=bool(options.transactions))


@contextmanager
def debezium_files(options: argparse.Namespace, _spark: SparkSession) -> Iterator[Bench]:
    """Provide one file of events."""
    file, verify = _debezium_changes(options)
    source = _settings(FilesInput(str(file.parent)), options)
    yield Bench(source, options.changes, verify)


@contextmanager
def debezium_kafka(options: argparse.Namespace, _spark: SparkSession) -> Iterator[Bench]:
    """Provide a topic of some partitions with the same events."""
    file, verify = _debezium_changes(options)
    shutil.rmtree(options.work / "broker", ignore_errors=True)
    with broker(options.work / "broker") as kafka:
        kafka.create(TOPIC, PARTITIONS)
        kafka.create(TRANSACTIONS_TOPIC, 1)
        with file.open(encoding="utf-8") as lines:
            sent = [
                json.dumps({**json.loads(line), "timestamp": SENT_MS + number // MESSAGES_A_MS})
                for number, line in enumerate(lines)
            ]
        kafka.send(sent, {TOPIC: PARTITIONS})
        source = _settings(KafkaInput(kafka.address, "bench[.].*"), options)
        yield Bench(source, options.changes, verify)


def decode_alone(options: argparse.Namespace, report: Report) -> None:
    """Report what this process needs to decode the events of one split of the file, without Spark."""
    file, _ = _debezium_changes(options)
    settings = _settings(FilesInput(str(file.parent)), options)
    (found,) = event_files(settings).list_files()
    context = SplitContext(settings.to_options(), 1, ReadWindow("stream", 0, 2**50), is_one_stream=True)
    events = min(options.changes, SPLIT_EVENTS)
    decoder = FileSplitDecoder(context, None, [FileSplit((Segment(found, 0, 0, events),))])
    prepare_reader()
    seconds = []
    for _ in range(ROUNDS_ALONE):
        gc.collect()
        begun_s = time.process_time()
        *_, last = decoder.blocks(0)
        seconds.append(time.process_time() - begun_s)
    must_equal(events, _events_of(last), "decoded events")
    report.note("decoding of an event, alone", min(seconds) / events * 1e6, "CPU µs", events=events)


def _events_of(block: pa.RecordBatch) -> int:
    places = SplitOutcome.from_bytes(block.column(OUTCOME)[0].as_py()).places
    return int(pc.sum(places[EVENTS]).as_py())


SOURCES: Final[Mapping[str, Any]] = {
    "spanner": spanner,
    "datastream": datastream,
    "debezium-files": debezium_files,
    "debezium-kafka": debezium_kafka,
}


def run_to_cut(pipeline: Pipeline, spark: SparkSession, meter: Meter, end_micros: int | None = None) -> int:
    """Run the steps of cycles until nothing is left to read, and return how many changes the log has got.

    Events are read until none is left; partitions of a change stream never end, and are read up to a moment.
    """
    changes, commit = 0, writes.append_files

    def commit_timed(*parts: Any) -> Any:
        meter.end("read")
        committed = commit(*parts)
        meter.end("commit of raw records")
        return committed

    is_done = False
    meter.begin()
    while not is_done:
        with patch.object(reading, "append_files", commit_timed):
            read = reading.read_windows(pipeline, spark, end_limit_micros=end_micros)
        meter.end("read")
        if not read.committed:
            return changes
        changes += order_changes(pipeline, spark).changes
        meter.end("order")
        merge_tables(pipeline, spark, pipeline.tables)
        extend_histories(pipeline, spark, pipeline.histories)
        meter.end("merge")
        cut = publish_cut(pipeline)
        meter.end("publish")
        maintain_lake(pipeline, spark)
        meter.end("maintain")
        print(f"  {changes:,} changes so far", flush=True)
        is_done = end_micros is not None and cut is not None and cut.position_micros >= end_micros - 1
    return changes


def report_steps(report: Report, meter: Meter, changes: int) -> None:
    """Report what each step and all of them together have cost."""
    total: dict[str, float] = dict.fromkeys((DRIVER, JVM, WORKERS), 0.0)
    for name, use in meter.steps.items():
        report.note(
            name,
            sum(use.processor_s.values()),
            "CPU s",
            **_rounded(use.processor_s),
            wall_s=round(use.wall_s, 2),
            task_s=round(use.task_s, 2),
            serial_s=round(use.serial_s, 2),
            slowest_task=round(use.slowest, 2),
            written_mb=round(use.written_bytes / 1e6, 1),
        )
        total = {kind: total[kind] + use.processor_s[kind] for kind in total}
    uses = list(meter.steps.values())
    wall_s, processor_s = sum(use.wall_s for use in uses), sum(total.values())
    report.note("changes", changes, "changes", wall_s=round(wall_s, 2), wall_rate=round(changes / wall_s))
    report.note("processor seconds of all steps", processor_s, "CPU s", **_rounded(total))
    report.note("changes a core second", changes / processor_s, "changes/s", goal=GOAL, least=LEAST)
    serial_s, task_s = sum(use.serial_s for use in uses), sum(use.task_s for use in uses)
    report.note("serial share of the task seconds", serial_s / task_s, "", at_most=MAX_SERIAL)
    report.note("written", sum(use.written_bytes for use in uses) / 1e6, "MB")
    for kind, peak in meter.peak_bytes.items():
        report.note(f"peak memory: {kind}", peak / 1e6, "MB")


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {kind.replace(" ", "_"): round(taken, 2) for kind, taken in seconds.items()}


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--source", choices=[*SOURCES, DECODING], required=True)
    parser.add_argument("--changes", type=int, default=1_000_000, help="changes; approximate for Spanner")
    parser.add_argument("--case", choices=[*CASES], default=PLAIN, help="form of Datastream's events")
    parser.add_argument(
        "--schema-blocks", action="store_true", help="Debezium's messages have schema blocks around them"
    )
    parser.add_argument(
        "--transactions",
        type=int,
        default=0,
        help="changes of a transaction that has BEGIN and END; 0 for none",
    )
    parser.add_argument("--rounds", type=int, default=2, help="rounds; the last one counts")
    parser.add_argument(
        "--driver-memory", default="3g", help="of Spark's driver; the platform's default is 2g"
    )
    options = parser.parse_args()
    report = Report("throughput", options)
    if options.source == DECODING:
        decode_alone(options, report)
        return
    folder = options.work / "throughput"
    shutil.rmtree(folder, ignore_errors=True)
    lake = LakeSettings(path=str(folder))
    with ExitStack() as stack:
        spark = stack.enter_context(open_session(SparkSettings(driver_memory=options.driver_memory), lake))
        bench: Bench = stack.enter_context(SOURCES[options.source](options, spark))
        for number in range(1, options.rounds + 1):
            pipeline = open_pipeline(PipelineSettings(f"round_{number}", bench.source, lake))
            if bench.begin_micros is not None:
                run_to_cut(pipeline, spark, Meter(spark, folder), bench.begin_micros)
            meter = Meter(spark, folder)
            end_micros = None if bench.begin_micros is None else pipeline.source.clock_micros()
            with meter.watch_memory():
                changes = run_to_cut(pipeline, spark, meter, end_micros)
            must_equal(bench.changes or changes, changes, "changes in the log")
            bench.verify(spark, pipeline)
            print(f"round {number} of {options.rounds}:", flush=True)
            report_steps(report, meter, changes)


if __name__ == "__main__":
    main()
