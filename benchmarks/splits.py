"""Events of Debezium a second, from files to raw records: by one task, and by as many as there are cores.

Both candidates read the same lines into a lake; their raw records have to be equal.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.harness import Report, arguments, interleaved, must_equal, timed
from benchmarks.tables import open_session
from benchmarks.unavailable import TYPES, Changes
from cdc_platform.lake.catalog.lake import RAW
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.reading.read import read_windows
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.spark.session.spark_settings import SparkSettings

ONE: Final = "one task"


@dataclass(frozen=True)
class Bench:
    """The input of one run, and the session that reads it."""

    spark: SparkSession
    lake: LakeSettings
    events: Path
    scratch: Path
    counts: list[int]

    def by_tasks(self, tasks: int) -> Callable[[], float]:
        """Return the candidate that reads all events, in a cycle that counts, with so many tasks."""
        numbers = iter(range(1_000_000))

        def run() -> float:
            name = f"tasks_{tasks}_{next(numbers)}"
            folder = self.scratch / name
            folder.mkdir(parents=True)
            (folder / "1.jsonl").hardlink_to(self.events)
            source = DebeziumSettings(FilesInput(str(folder)), columns={"public.items": TYPES})
            settings = replace(PipelineSettings(name, source, self.lake), read_tasks=tasks)
            pipeline = open_pipeline(settings)
            seconds = timed(lambda: read_windows(pipeline, self.spark))
            rows = self.spark.table(pipeline.lake.spark_system_table(RAW)).where("kind = 'data_change'")
            self.counts.append(rows.select("event.event_id").distinct().count())
            shutil.rmtree(folder)
            return seconds

        return run


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--events", type=int, default=300_000, help="updates, at most those of one cycle")
    parser.add_argument("--tasks", type=int, default=8, help="tasks of the second candidate")
    parser.add_argument("--rounds", type=int, default=4, help="rounds; the first is cold and told apart")
    options = parser.parse_args()
    report = Report("splits", options)
    folder = options.work / "splits"
    shutil.rmtree(folder, ignore_errors=True)
    Changes(5_000, options.events, 0.0, options.seed).write(folder / "inputs")
    lake = LakeSettings(path=str(folder / "lake"))
    with open_session(SparkSettings(master="local[2]", driver_memory="3g"), lake) as spark:
        bench = Bench(spark, lake, folder / "inputs" / "whole" / "1.jsonl", folder / "scratch", [])
        candidates = {ONE: bench.by_tasks(1), f"{options.tasks} tasks": bench.by_tasks(options.tasks)}
        seconds = interleaved(options.rounds, candidates)
    for count in bench.counts:
        must_equal(options.events, count, "events")
    for name, rounds in seconds.items():
        report.note(f"{name}: cold", rounds[0], "s")
    report.compare({name: r[1:] or r for name, r in seconds.items()}, ONE, options.events, "events/s")


if __name__ == "__main__":
    main()
