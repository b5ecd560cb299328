"""Cycles of a few events with a long log: their cost must not depend on the length of the log.

Two pipelines read files of Datastream's events about the same few rows: one has a short log, the other one a
log of a million changes, all of them young enough that they may come again. Then each round adds a file of
new events to both and runs a cycle on either; and later a file that was read before, under another name.
"""

import argparse
import json
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.datastream import make_event, run_all
from benchmarks.measure.harness import Report, arguments, interleaved, must_equal, timed
from benchmarks.measure.tables import open_session
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.spark.launch.spark_settings import SparkSettings

KEYS: Final = 1_000
EVENTS_PER_CYCLE: Final = 100
EVENTS_A_FILE: Final = 5_000
SHORT, LONG = "short log", "long log"
AGAIN: Final = "a file comes again"


@dataclass
class Bench:
    """A pipeline and the folder that it reads."""

    folder: Path
    pipeline: Pipeline
    events: int = 0
    files: int = 0
    logged: int = field(default=0, init=False)

    def add_events(self, events: range) -> None:
        """Write a file of events."""
        self.files += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{json.dumps(make_event(number, KEYS))}\n" for number in events)
        path = self.folder / f"bank_accounts/2026/09/21/00/00/{self.files:06}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lines, encoding="utf-8")

    def fill(self, spark: SparkSession, events: int) -> None:
        """Bring so many changes into the log."""
        for begin in range(0, events, EVENTS_A_FILE):
            self.add_events(range(begin, min(events, begin + EVENTS_A_FILE)))
        self.events = events
        run_all(self.pipeline, spark)

    def cycle(self, spark: SparkSession, *, again: bool = False) -> float:
        """Return the seconds of a cycle that reads a file: of new events, or of those before them."""
        begin = self.events - EVENTS_PER_CYCLE if again else self.events
        self.add_events(range(begin, begin + EVENTS_PER_CYCLE))
        outcomes = []
        seconds = timed(lambda: outcomes.append(run_cycle(self.pipeline, spark)))
        self.events = begin + EVENTS_PER_CYCLE
        must_equal(0 if again else EVENTS_PER_CYCLE, outcomes[0].order.changes, "changes of a cycle")
        return seconds


def open_bench(options: argparse.Namespace, name: str, lake: LakeSettings) -> Bench:
    """Return a bench without any event."""
    folder = options.work / "log_length_inputs" / name.replace(" ", "_")
    shutil.rmtree(folder, ignore_errors=True)
    source = DatastreamSettings(str(folder), table_name="{table}")
    return Bench(folder, open_pipeline(PipelineSettings(name.replace(" ", "_"), source, lake)))


def report_ratio(report: Report, what: str, seconds: dict[str, list[float]]) -> None:
    """Report the medians of both and their ratio."""
    medians = {name: statistics.median(_warm(values)) for name, values in seconds.items()}
    for name, median in medians.items():
        report.note(f"{what}: {name}", median, "s")
    report.note(f"{what}: {LONG} / {SHORT}", medians[LONG] / medians[SHORT], "x (medians)")


def _warm(seconds: Sequence[float]) -> Sequence[float]:
    return seconds[len(seconds) // 3 :]


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--changes", type=int, default=1_000_000, help="changes of the long log")
    parser.add_argument("--rounds", type=int, default=12, help="cycles on either; a third of them warms up")
    options = parser.parse_args()
    report = Report("log_length", options)
    folder = options.work / "log_length"
    shutil.rmtree(folder, ignore_errors=True)
    lake = LakeSettings(path=str(folder))
    with open_session(SparkSettings(driver_memory="3g"), lake) as spark:
        benches = {name: open_bench(options, name, lake) for name in (SHORT, LONG)}
        benches[SHORT].fill(spark, EVENTS_A_FILE)
        benches[LONG].fill(spark, options.changes)
        for what, again in (("new events", False), (AGAIN, True)):
            cycles = {
                name: lambda bench=bench, again=again: bench.cycle(spark, again=again)
                for name, bench in benches.items()
            }
            report_ratio(report, what, interleaved(options.rounds, cycles))


if __name__ == "__main__":
    main()
