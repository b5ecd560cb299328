"""Datastream files: a pipeline compared with Spark's own reading, and cycles with nothing new.

A million events of MySQL lie in 2,000 files of JSON lines: inserts, updates and deletes of one table of
ten columns. The pipeline reads, orders, merges and publishes them; as a peer, `spark.read.json` reads the
same files, every value of them, and it also appends them to an Iceberg table as they are. Then the read
progress names 100,000 files that lie there and have been read, and cycles are timed that find nothing new.
"""

import argparse
import json
import shutil
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.inputs.datastream_cases import CASES, PLAIN
from benchmarks.measure.harness import Report, arguments, interleaved, must_equal, timed
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.model.base.schemas import READ_PROGRESS_ROWS
from cdc_platform.model.base.stored_names import CYCLE, RAW, READ_PROGRESS
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.resources import spark_session
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.file_store import FileStore
from cdc_platform.spark.launch.spark_settings import SparkSettings

OURS: Final = "platform, into tables"
SPARK: Final = "spark.read.json, counted"
APPENDED: Final = "spark.read.json, appended to a table"
SCRATCH: Final = "lake.scratch.events"
ORIGIN: Final = 1_790_000_000_000_000
IDLE_CYCLES: Final = 5
TEXT_COLUMNS: Final = tuple(f"note_{number}" for number in range(5))


def make_event(number: int, keys: int, case: str = PLAIN) -> dict[str, Any]:
    """Return the event of a position of the log: every key is inserted, then updated, and some deleted.

    Args:
        number: the position.
        keys: number of different keys.
        case: one of CASES, which changes the event's form.
    """
    key, turn = number % keys, number // keys
    change = "INSERT" if turn == 0 else "DELETE" if key % 20 == turn else "UPDATE-INSERT"
    moment = to_rfc3339(ORIGIN + number * 1000)
    row: dict[str, Any] = {"id": key, "balance": number, "rate": number / 7, "opened": moment}
    row |= {name: f"{name} of row {key} at {number}" for name in TEXT_COLUMNS}
    event = {
        "uuid": f"{number:032x}",
        "read_timestamp": moment,
        "source_timestamp": moment,
        "object": "bank_accounts",
        "read_method": "mysql-cdc-binlog",
        "stream_name": "projects/1/locations/here/streams/bank",
        "schema_key": "b" * 40,
        "sort_keys": [ORIGIN // 1000 + number, "mysql-bin.000001", number],
        "source_metadata": {
            "table": "accounts",
            "database": "bank",
            "primary_keys": ["id"],
            "log_file": "mysql-bin.000001",
            "log_position": number,
            "change_type": change,
            "is_deleted": change == "DELETE",
        },
        "payload": row,
    }
    CASES[case](event, number)
    return event


def write_files(folder: Path, events: int, files: int, case: str = PLAIN) -> None:
    """Write events into files of one object, minute by minute, unless they lie there already."""
    if folder.exists():
        return
    per_file, draft = -(-events // files), folder.with_suffix(".new")
    shutil.rmtree(draft, ignore_errors=True)
    for number in range(files):
        path = draft / f"bank_accounts/2026/09/21/{number // 60 % 24:02}/{number % 60:02}"
        path.mkdir(parents=True, exist_ok=True)
        these = range(number * per_file, min((number + 1) * per_file, events))
        lines = "".join(f"{json.dumps(make_event(event, max(1, events // 4), case))}\n" for event in these)
        (path / f"{'b' * 40}_mysql-cdc-binlog_1_{number}_0.jsonl").write_text(lines, encoding="utf-8")
    draft.rename(folder)


def open_new(work: Path, folder: Path, number: int) -> Pipeline:
    """Return a pipeline over the files, in a separate part of the lake."""
    source = DatastreamSettings(str(folder), table_name="{table}")
    spark = SparkSettings(driver_memory="6g")
    return open_pipeline(PipelineSettings(f"files_{number}", source, LakeSettings(str(work / "lake")), spark))


def run_all(pipeline: Pipeline, spark: SparkSession) -> None:
    """Run cycles until all files have been read."""
    while run_cycle(pipeline, spark).read.committed:
        pass


def read_with_spark(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the events of the same files as Spark alone reads them."""
    return spark.read.option("recursiveFileLookup", "true").json(str(folder))


def count_with_spark(spark: SparkSession, folder: Path) -> int:
    """Read the same files with Spark alone, every value of them, and return how many events there are."""
    events = read_with_spark(spark, folder)
    digest = events.selectExpr("xxhash64(uuid, source_metadata.log_position, payload.*) as digest")
    return int(digest.selectExpr("count(digest)").collect()[0][0])


def append_with_spark(spark: SparkSession, folder: Path) -> int:
    """Bring the same files into an Iceberg table with Spark alone, and return how many events it has."""
    events = read_with_spark(spark, folder)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {SCRATCH.rpartition('.')[0]}")
    spark.sql(f"DROP TABLE IF EXISTS {SCRATCH}")
    # A table that is made from the events themselves would infer their schema twice.
    spark.createDataFrame([], events.schema).writeTo(SCRATCH).using("iceberg").create()
    events.writeTo(SCRATCH).append()
    return int(spark.sql(f"SELECT count(*) FROM {SCRATCH}").collect()[0][0])


def know_files(pipeline: Pipeline, folder: Path, files: int) -> None:
    """Create the files, and record in the read progress that they have been read."""
    many = folder.with_name("known")
    for number in range(files):
        day, hour, minute = number // 14_400 + 1, number // 600 % 24, number // 10 % 60
        path = many / f"bank_accounts/2026/09/{day:02}/{hour:02}/{minute:02}"
        if number % 10 == 0:
            path.mkdir(parents=True, exist_ok=True)
        (path / f"{number:06}.jsonl").touch()
    actual = list(FileStore(str(many), (".jsonl",)).list_files())
    cycle = read_mark(pipeline.lake.system_table(RAW)).cycle
    columns = {"cycle": [cycle] * len(actual), "path": [file.path for file in actual]}
    rows = pa.table(columns | {"version": [file.version for file in actual]}, READ_PROGRESS_ROWS)
    pipeline.lake.system_table(READ_PROGRESS).append(rows, snapshot_properties={CYCLE: str(cycle)})


def time_idle(pipeline: Pipeline, spark: SparkSession, folder: Path, files: int, cycles: int) -> list[float]:
    """Return the seconds of cycles that find nothing new among so many files."""
    know_files(pipeline, folder, files)
    source = DatastreamSettings(str(folder.with_name("known")), table_name="{table}")
    idle = open_pipeline(replace(pipeline.settings, source=source))
    taken = []
    for _ in range(cycles):
        outcome = []
        taken.append(timed(lambda: outcome.append(run_cycle(idle, spark))))  # noqa: B023  called at once
        must_equal(0, int(outcome[0].read.committed), "commits of a cycle with nothing new")
    return taken


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--known-files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2, help="rounds after a first one, which is cold")
    options: argparse.Namespace = parser.parse_args()
    report = Report("datastream", options)
    folder = options.work / f"datastream_{options.events}_{options.files}"
    write_files(folder, options.events, options.files)
    shutil.rmtree(options.work / "lake", ignore_errors=True)
    pipelines = [open_new(options.work, folder, number) for number in range(options.rounds + 1)]
    spark = spark_session(pipelines[0].settings)
    waiting = iter(pipelines)
    done: list[Pipeline] = []

    def ours() -> None:
        done.append(next(waiting))
        run_all(done[-1], spark)

    def theirs() -> None:
        must_equal(options.events, count_with_spark(spark, folder), "events that Spark reads")

    def appended() -> None:
        must_equal(options.events, append_with_spark(spark, folder), "events that Spark appends")

    candidates = {OURS: ours, SPARK: theirs, APPENDED: appended}
    for run in candidates.values():
        run()
    timers = {name: partial(timed, run) for name, run in candidates.items()}
    seconds = interleaved(options.rounds, timers)
    report.compare(seconds, OURS, options.events, "events/s")
    idle = time_idle(done[-1], spark, folder, options.known_files, IDLE_CYCLES)
    what = f"a cycle with nothing new, {options.known_files:,} files known"
    report.note(what, min(idle), "s", median=round(statistics.median(idle), 3), first=round(idle[0], 3))


if __name__ == "__main__":
    main()
