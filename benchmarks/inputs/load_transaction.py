"""One transaction of many changes: over the partitions of a change stream, or as events of PostgreSQL."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, cast

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.inputs.load_feeds import schema_of
from benchmarks.measure.harness import must_equal
from benchmarks.measure.load_bench import Bench
from benchmarks.partitions import START, long_lineage
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.state.control import save_lineage
from cdc_platform.model.base.schemas import RAW_CHANGE_RECORDS
from cdc_platform.model.stream.read_windows import ReadPlan, ReadWindow
from cdc_platform.model.stream.records import ModType, ValueCaptureType
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.printing.progress_display import show_progress
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.sources.task_plan import TaskPlan
from cdc_platform_tests.support.debezium.connector import Connector
from cdc_platform_tests.support.pipelines import (
    FakeSource,
    data_change,
    raw_table,
    window_row,
)

PARTITIONS: Final = 8
MODS_A_RECORD: Final = 10
RECORDS_A_BATCH: Final = 1_000
LINES_A_FILE: Final = 50_000
SECOND: Final = 1_000_000
NOTES: Final = ("inserted", "updated")
"""Beginnings of the texts of all rows after the first transaction, and after the second."""
TABLE: Final = schema_of("items", ("number_", "note"))
TYPES: Final = {"id": "bigint", "number_": "bigint", "note": "text"}


@dataclass(frozen=True)
class Task:
    """The records of one partition in a transaction of a number of changes."""

    number: int
    windows: Sequence[ReadWindow]
    cycle: int
    changes: int
    note: str

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the records, made where they are read."""
        window, records = self.windows[self.number], self.changes // MODS_A_RECORD
        own = range(self.number, records, len(self.windows))
        for begin in range(0, len(own), RECORDS_A_BATCH):
            rows = [self._record(number, window) for number in own[begin : begin + RECORDS_A_BATCH]]
            yield from raw_table([{**row, "cycle": self.cycle} for row in rows]).to_batches()
        yield from raw_table([{**window_row(window, records=len(own)), "cycle": self.cycle}]).to_batches()

    def _record(self, number: int, window: ReadWindow) -> dict[str, Any]:
        keys = range(number * MODS_A_RECORD, (number + 1) * MODS_A_RECORD)
        return data_change(
            TABLE.name,
            ModType.INSERT if self.note == NOTES[0] else ModType.UPDATE,
            *[({"id": str(key)}, {"number_": str(key), "note": f"{self.note} {key}"}) for key in keys],
            at_micros=window.end_inclusive_micros,
            transaction=self.note,
            sequence=number,
            records=self.changes // MODS_A_RECORD,
            capture=ValueCaptureType.NEW_ROW,
            token=window.token,
            schema=TABLE,
        )


@dataclass
class TransactionSource(FakeSource):
    """A change stream whose partitions have one transaction together."""

    changes: int = 0
    note: str = ""

    def read_locally(self, cycle: int, plan: ReadPlan, max_s: float) -> None:
        """Leave all reading to Spark."""

    def plan_tasks(self, cycle: int, plan: ReadPlan, max_tasks: int) -> TaskPlan:  # noqa: ARG002
        """Return one task for each window of a cycle."""
        tasks = [
            Task(number, plan.windows, cycle, self.changes, self.note) for number in range(len(plan.windows))
        ]
        return TaskPlan(RAW_CHANGE_RECORDS, Task.read, tasks)


class Sender(Protocol):
    """A source of transactions that each change all rows, and the pipeline that reads them."""

    pipeline: Pipeline

    def send(self, note: str) -> None:
        """Send a transaction that inserts all rows, with the first of `NOTES`, or updates them."""
        ...


def run_transaction(bench: Bench) -> None:
    """Publish a transaction that inserts a million rows in one cut, and one that updates them in the next."""
    changes = bench.scaled(1_000_000)
    makers: Mapping[str, Callable[[Bench, int], Sender]] = {"spanner": StreamSender, "debezium": EventSender}
    for kind in [kind for kind in makers if kind in bench.options.sources]:
        sender = makers[kind](bench, changes)
        for note in NOTES:
            sender.send(note)
            what = f"{kind}, a transaction of {changes:,} changes, {note}"
            _publish(bench, what, sender.pipeline, changes)
            must_equal(
                (changes, changes, changes * (changes - 1) // 2),
                _summary(bench.spark, sender.pipeline, note),
                what,
            )


def _publish(bench: Bench, what: str, pipeline: Pipeline, changes: int) -> None:
    bench.meter.begin()
    with show_progress(pipeline.progress):
        outcome = run_cycle(pipeline, bench.spark)
        while not outcome.order.changes and outcome.read.committed:
            outcome = run_cycle(pipeline, bench.spark)
    print(f"  {what}: {dict(outcome.seconds)}", flush=True)
    bench.meter.end(what)
    bench.note(what)
    must_equal((changes, 1), (outcome.order.changes, outcome.order.transactions), what)


def _summary(spark: SparkSession, pipeline: Pipeline, note: str) -> tuple[int, int, int]:
    """Return the rows of the table, those of them that are right, and the sum of their keys."""
    target = pipeline.lake.spark_table(pipeline.tables[0].name)
    right = f"count_if(number_ = id and note = concat('{note} ', id))"
    row = spark.sql(f"SELECT count(distinct id), {right}, sum(cast(id as bigint)) FROM {target}").collect()[0]
    return row[0], row[1], row[2]


class StreamSender:
    """Transactions over the partitions of a change stream."""

    def __init__(self, bench: Bench, changes: int) -> None:
        stream = SpannerSettings("project", "instance", "database", "stream")
        settings = PipelineSettings("transaction_spanner", stream, bench.lake, initial_copy=False)
        self._source = TransactionSource((TABLE,), START, START, changes=changes)
        self.pipeline = Pipeline(
            settings, Lake(bench.lake, settings.name), cast("SpannerSource", self._source)
        )
        save_lineage(self.pipeline.lake, replace(long_lineage(0, PARTITIONS), cycle=0))

    def send(self, note: str) -> None:
        """Let each partition return its part of the transaction."""
        self._source.now_micros += 2 * SECOND
        self._source.note = note


class EventSender:
    """Transactions of PostgreSQL in files of Debezium's events."""

    def __init__(self, bench: Bench, changes: int) -> None:
        self._folder = bench.options.work / "load" / "transaction_debezium"
        self._folder.mkdir(parents=True)
        self._connector, self._changes, self._files = Connector(), changes, 0
        columns = {"public.orders": TYPES | {"n": "integer"}}
        source = DebeziumSettings(FilesInput(str(self._folder)), columns=columns, has_transaction_topic=True)
        self.pipeline = open_pipeline(PipelineSettings("transaction_debezium", source, bench.lake))

    def send(self, note: str) -> None:
        """Write the files of the transaction."""
        change = self._connector.insert if note == NOTES[0] else self._connector.update
        self._connector.begin()
        for key in range(self._changes):
            change(key, n=0, number_=key, note=f"{note} {key}")
            if len(self._connector.lines) >= LINES_A_FILE:
                self._flush()
        self._connector.end()
        self._flush()

    def _flush(self) -> None:
        self._files += 1
        lines = "\n".join([*self._connector.lines, ""])
        (self._folder / f"{self._files:06}.jsonl").write_text(lines, encoding="utf-8")
        self._connector.lines.clear()
