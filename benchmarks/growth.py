"""Growth of a cycle with its table: changes of recent keys into a table, and into one ten times as large.

Both tables begin with an initial copy, so their files are those that the platform itself writes. Then each
round runs a whole cycle on either, from reading to the published cut, and maintenance where it is due.
"""

import argparse
import itertools
import json
import shutil
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.inputs.changes import CHECKSUM_SQL, TABLE, Checksum, History, arrow_columns
from benchmarks.measure.harness import Report, arguments, interleaved, must_equal, percentile
from benchmarks.measure.tables import open_session
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.timestamps import from_datetime, to_rfc3339
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.model.stream.records import ModType, ValueCaptureType
from cdc_platform.pipeline.copying.copy import copy_tables
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.loading import load_tasks
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.sources.task_plan import TaskPlan
from cdc_platform.spark.launch.spark_settings import SparkSettings
from cdc_platform.spark.tables.typed_columns import KIND, ORDINAL
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import START, FakeSource, data_change, window_row

SECOND = 1_000_000
MAX_GROWTH = 1.3
"""How many times as long a cycle on the table that is ten times as large may take."""
MODS_A_RECORD = 10


def read_range(chunk: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range of ids, made where they are read."""
    begin, end = json.loads(chunk)
    yield from rows_between(begin, end).to_batches(max_chunksize=10_000)


def rows_between(begin: int, end: int) -> pa.Table:
    """Return the rows of ids from one to before another, as they are before any change."""
    ids = np.arange(begin, end, dtype=np.int64)
    return pa.table(arrow_columns(ids, np.zeros_like(ids)))


@dataclass(frozen=True)
class RangePlanner:
    """Cuts ids into ranges."""

    rows: int

    def chunks(self, _table: TableSchema, chunk_rows: int) -> tuple[str, ...]:
        """Return the ranges as texts."""
        bounds = [*range(0, self.rows, chunk_rows), self.rows]
        return tuple(json.dumps(pair) for pair in itertools.pairwise(bounds))


@dataclass
class GrownSource(FakeSource):
    """A source in memory whose table has many rows already, and whose changes the benchmark sets."""

    rows: int = 0
    changes: list[RawRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Answer each read with the prepared changes."""
        self.answer = self.answer_cycle

    def plan_copies(self, _at_micros: int) -> Any:
        """Return what cuts the table into chunks."""
        return RangePlanner(self.rows)

    def read_copy(
        self, spark: SparkSession, _table: TableSchema, _at_micros: int, chunks: Sequence[str]
    ) -> DataFrame:
        """Return the rows of the ranges."""
        return load_tasks(spark, TaskPlan(rows_between(0, 1).schema, read_range, chunks))

    def answer_cycle(self, cycle: int, windows: Sequence[ReadWindow]) -> list[RawRow]:
        """Return the changes and the word that the windows were read."""
        reports = [window_row(planned, records=len(self.changes)) for planned in windows]
        return [{**row, "cycle": cycle} for row in (*self.changes, *reports)]


@dataclass
class Candidate:
    """A pipeline on a table of some size, and the truth of the table."""

    pipeline: Pipeline
    source: GrownSource
    history: History
    changes: int
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    files: int = 0
    largest_rows: int = 0

    def copy(self, spark: SparkSession) -> None:
        """Bring the table into the lake as it is before any change."""
        while copy_tables(self.pipeline, spark).is_pending:
            pass
        self.cycle(spark)

    def cycle(self, spark: SparkSession) -> float:
        """Run a cycle on the next changes, and return its seconds."""
        self.source.now_micros += SECOND
        self.source.changes = list(records(self.history.take(self.changes), self.source.now_micros - 1))
        begin = time.perf_counter()
        outcome = run_cycle(self.pipeline, spark)
        whole = time.perf_counter() - begin
        must_equal(self.changes, outcome.order.changes, "changes of the cycle")
        must_equal(False, any(merge.fell_back for merge in outcome.merges), "whether the merge fell back")
        for step, taken in outcome.seconds.items():
            self.seconds[step].append(taken)
        return whole

    def verify(self, spark: SparkSession) -> None:
        """Make sure that the table is exactly right."""
        table = self.pipeline.lake.spark_table(TABLE.name)
        row = spark.sql(CHECKSUM_SQL.format(table=table)).collect()[0]
        must_equal(self.history.checksum, Checksum(**row.asDict()), table)
        actual = self.pipeline.lake.table(TABLE.name)
        rows = [] if actual is None else [task.file.record_count for task in actual.scan().plan_files()]
        self.files, self.largest_rows = len(rows), max(rows, default=0)


def records(changes: pa.Table, at_micros: int) -> Iterator[RawRow]:
    """Yield the changes as data change records, in their order, with several mods each."""
    rows = changes.sort_by(ORDINAL).to_pylist()
    groups: list[list[dict[str, Any]]] = []
    for row in rows:
        if not groups or len(groups[-1]) == MODS_A_RECORD or groups[-1][0][KIND] != row[KIND]:
            groups.append([])
        groups[-1].append(row)
    for number, group in enumerate(groups):
        yield data_change(
            TABLE.name,
            ModType[group[0][KIND].upper()],
            *[({"id": str(row["id"])}, new_values(row)) for row in group],
            at_micros=at_micros,
            transaction=f"{at_micros}",
            sequence=number,
            records=len(groups),
            capture=ValueCaptureType.NEW_ROW,
            schema=TABLE,
        )


def new_values(row: dict[str, Any]) -> dict[str, Any]:
    """Return the new values of a mod."""
    if row[KIND] == "delete":
        return {}
    numbers = {name: str(row[name]) for name in ("balance", "visits")}
    moment = to_rfc3339(from_datetime(row["updated_at"]))
    return {**numbers, "owner": row["owner"], "status": row["status"], "updated_at": moment}


def open_candidate(lake: LakeSettings, rows: int, options: argparse.Namespace) -> Candidate:
    """Return a pipeline on an empty part of the lake, whose source has so many rows."""
    settings = PipelineSettings(
        name=f"growth_{rows}",
        source=SpannerSettings("project", "instance", "database", "stream"),
        lake=lake,
        copy_chunk_rows=options.chunk_rows,
        copy_s=3600.0,
    )
    source = GrownSource((TABLE,), START, START + SECOND, rows=rows)
    pipeline = Pipeline(settings, Lake(lake, settings.name), cast("SpannerSource", source))
    history = History(rows, options.seed, pool=rows, hot=not options.even)
    return Candidate(pipeline, source, history, options.changes)


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the smaller table")
    parser.add_argument("--times", type=int, default=10, help="how many times as large the other one is")
    parser.add_argument("--changes", type=int, default=1000, help="changes of a cycle")
    parser.add_argument("--chunk-rows", type=int, default=25_000, help="rows a task copies")
    parser.add_argument("--rounds", type=int, default=20, help="counted cycles on each table")
    parser.add_argument("--warm-up", type=int, default=6, help="cycles on each before them")
    parser.add_argument("--even", action="store_true", help="change keys of the whole table, not recent ones")
    options = parser.parse_args()
    report = Report("growth", options)
    folder = options.work / "growth"
    shutil.rmtree(folder, ignore_errors=True)
    lake = LakeSettings(str(folder))
    with open_session(SparkSettings(driver_memory="3g"), lake) as spark:
        candidates = {
            f"{rows:,} rows": open_candidate(lake, rows, options)
            for rows in (options.rows, options.rows * options.times)
        }
        for candidate in candidates.values():
            candidate.copy(spark)
        cycles = {name: lambda actual=actual: actual.cycle(spark) for name, actual in candidates.items()}
        interleaved(options.warm_up, cycles)
        for candidate in candidates.values():
            candidate.seconds.clear()
        seconds = interleaved(options.rounds, cycles)
        for candidate in candidates.values():
            candidate.verify(spark)
    report_growth(report, candidates, seconds)


def report_growth(report: Report, candidates: dict[str, Candidate], seconds: dict[str, list[float]]) -> None:
    """Report the cycles on both tables, whole and by step, and how they have grown."""
    small, large = candidates
    for name, taken in seconds.items():
        median = statistics.median(taken)
        files = candidates[name].files
        report.note(f"cycle on {name}", median, "s (median)", p95=percentile(taken, 0.95), files=files)
    for step in candidates[small].seconds:
        before, after = (statistics.median(candidates[name].seconds[step]) for name in (small, large))
        report.note(f"{step}, {large}", after, "s (median)", small=before, ratio=after / max(before, 1e-3))
    ratio = statistics.median(seconds[large]) / statistics.median(seconds[small])
    report.note("growth of a cycle", ratio, "x (medians)", at_most=MAX_GROWTH, reached=ratio <= MAX_GROWTH)


if __name__ == "__main__":
    main()
