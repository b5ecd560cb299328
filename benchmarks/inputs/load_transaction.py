"""One transaction of many changes: over the partitions of a change stream, or as events of PostgreSQL."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

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
TABLE: Final = schema_of("items", ("number_", "note"))
TYPES: Final = {"id": "bigint", "number_": "bigint", "note": "text"}


class TransactionDataSource(DataSource):
    """Records of one transaction, made where they are read."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "generated_transaction"

    def schema(self) -> Any:
        """Return the columns of `raw_change_records`."""
        return from_arrow_schema(RAW_CHANGE_RECORDS)

    def reader(self, schema: Any) -> "TransactionReader":  # noqa: ARG002  Spark passes it
        """Return the reader."""
        return TransactionReader(self.options)


class TransactionReader(DataSourceReader):
    """Yields the records of each partition by a separate task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.windows = [ReadWindow(*window) for window in json.loads(options["windows"])]
        self.cycle, self.changes = int(options["cycle"]), int(options["changes"])

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each window."""
        return [InputPartition(number) for number, _ in enumerate(self.windows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield Arrow batches."""
        window, records = self.windows[partition.value], self.changes // MODS_A_RECORD
        own = range(partition.value, records, len(self.windows))
        for begin in range(0, len(own), RECORDS_A_BATCH):
            rows = [self._record(number, window) for number in own[begin : begin + RECORDS_A_BATCH]]
            yield from raw_table([{**row, "cycle": self.cycle} for row in rows]).to_batches()
        yield from raw_table([{**window_row(window, records=len(own)), "cycle": self.cycle}]).to_batches()

    def _record(self, number: int, window: ReadWindow) -> dict[str, Any]:
        keys = range(number * MODS_A_RECORD, (number + 1) * MODS_A_RECORD)
        return data_change(
            TABLE.name,
            ModType.INSERT,
            *[({"id": str(key)}, {"number_": str(key), "note": f"row {key}"}) for key in keys],
            at_micros=window.end_inclusive_micros,
            transaction="huge",
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

    def read_locally(self, cycle: int, plan: ReadPlan, max_s: float) -> None:
        """Leave all reading to Spark."""

    def spark_format(self) -> type[DataSource]:
        """Return the data source that makes the records."""
        return TransactionDataSource

    def spark_options(self, cycle: int, plan: ReadPlan, max_tasks: int) -> dict[str, str]:  # noqa: ARG002
        """Return the windows of a cycle."""
        windows = [(w.token, w.start_exclusive_micros, w.end_inclusive_micros) for w in plan.windows]
        return {"windows": json.dumps(windows), "cycle": str(cycle), "changes": str(self.changes)}


def run_transaction(bench: Bench) -> None:
    """Publish one transaction of a million changes in one cut."""
    changes = bench.scaled(1_000_000)
    makers = {"spanner": _stream, "debezium": _events}
    for kind in makers.keys() & {*bench.options.sources}:
        _publish(
            bench, f"{kind}, a transaction of {changes:,} changes", makers[kind](bench, changes), changes
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
    must_equal((changes, changes, changes * (changes - 1) // 2), _summary(bench.spark, pipeline), what)


def _summary(spark: SparkSession, pipeline: Pipeline) -> tuple[int, int, int]:
    """Return the rows of the table, those of them that are right, and the sum of their keys."""
    target = pipeline.lake.spark_table(pipeline.tables[0].name)
    right = "count_if(number_ = id and note = concat('row ', id))"
    row = spark.sql(f"SELECT count(distinct id), {right}, sum(cast(id as bigint)) FROM {target}").collect()[0]
    return row[0], row[1], row[2]


def _stream(bench: Bench, changes: int) -> Pipeline:
    stream = SpannerSettings("project", "instance", "database", "stream")
    settings = PipelineSettings("transaction_spanner", stream, bench.lake, initial_copy=False)
    lineage = long_lineage(0, PARTITIONS)
    source = TransactionSource((TABLE,), START, START + 2 * SECOND, changes=changes)
    pipeline = Pipeline(settings, Lake(bench.lake, settings.name), cast("SpannerSource", source))
    save_lineage(pipeline.lake, replace(lineage, cycle=0))
    return pipeline


def _events(bench: Bench, changes: int) -> Pipeline:
    folder = bench.options.work / "load" / "transaction_debezium"
    folder.mkdir(parents=True)
    connector, files = Connector(), 0
    connector.begin()
    for key in range(changes):
        connector.insert(key, number_=key, note=f"row {key}")
        if len(connector.lines) >= LINES_A_FILE:
            files = _flush(connector, folder, files)
    connector.end()
    _flush(connector, folder, files)
    columns = {"public.orders": TYPES | {"n": "integer"}}
    source = DebeziumSettings(FilesInput(str(folder)), columns=columns, has_transaction_topic=True)
    return open_pipeline(PipelineSettings("transaction_debezium", source, bench.lake))


def _flush(connector: Connector, folder: Path, files: int) -> int:
    (folder / f"{files:06}.jsonl").write_text("\n".join([*connector.lines, ""]), encoding="utf-8")
    connector.lines.clear()
    return files + 1
