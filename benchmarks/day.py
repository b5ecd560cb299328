"""A day of each source in fast motion, a minute for each cycle.

Churn, all faults of the source and schema changes; the process dies, or the lake's disk or catalog fails, in
every twentieth cycle, and Spark does all the work of every 24th. At every hundredth cycle tables and log are
compared with a truth that shares no code with the platform, and all checks run at the end. Ends with exit
code 1 if anything is wrong.
"""

import argparse
import math
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.measure.harness import Report, arguments
from benchmarks.measure.tables import open_session
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.launch.spark_settings import SparkSettings
from cdc_platform.spark.session.session_settings import INTERPRETED, ONE_TASK
from cdc_platform_tests.support.days.day import MINUTE_S, Day, Rhythm
from cdc_platform_tests.support.days.sources import DAYS, open_day
from cdc_platform_tests.support.footprints.footprint import Memory, Session, Tree, tree_of
from cdc_platform_tests.support.footprints.java_classes import keep_classes

WARM: Final = 40
"""The first samples of memory and lake are taken after so many cycles."""
SHOWN_EVERY: Final = 10
MEGA: Final = 1_000_000


@dataclass(frozen=True)
class Sample:
    """Memory of the process after a garbage collection, and the lake's files, after so many cycles."""

    cycles: int
    memory: Memory
    lake: Tree

    def __str__(self) -> str:
        heap, python = self.memory.heap_bytes // MEGA, self.memory.python_rss_bytes // MEGA
        size, files = self.lake.size_bytes // MEGA, self.lake.files
        return f"cycle {self.cycles}: Java's heap {heap}, Python {python}, lake {size} MB in {files} files"


def run_day(name: str, spark: SparkSession, options: argparse.Namespace) -> tuple[Day, list[Sample]]:
    """Run a day, at most until its real time is over, and return it with its samples."""
    folder: Path = options.work / "day" / name
    shutil.rmtree(folder, ignore_errors=True)
    until_s = time.monotonic() + options.minutes * 60 if options.minutes else math.inf
    session, samples = Session.of(spark), list[Sample]()
    with open_day(name, spark, folder, options.changes, options.seed, Rhythm()) as day:
        for done in day.run(int(options.hours * 3600 / MINUTE_S)):
            if day.cycles >= WARM * (len(samples) + 1) ** 2:
                samples.append(Sample(day.cycles, session.memory(), tree_of(folder / "lake")))
                print(f"  {samples[-1]}", flush=True)
            if day.cycles % SHOWN_EVERY == 1:
                steps = "  ".join(f"{step} {taken:.2f}" for step, taken in done.steps_s.items())
                print(
                    f"  {day.cycles} cycles  {day.processor_s:.0f} s  {day.changes} changes  {steps}",
                    flush=True,
                )
            if time.monotonic() > until_s:
                break
        day.end()
        samples.append(Sample(day.cycles, session.memory(), tree_of(folder / "lake")))
    for fault in day.wrong:
        print(f"  WRONG {name}: {fault}", flush=True)
    return day, samples


def report_day(report: Report, name: str, day: Day, samples: Sequence[Sample]) -> None:
    """Report a day, and print its row of a table in Markdown."""
    first, last = samples[0], samples[-1]
    heaps, pythons = (
        [f"{getattr(sample.memory, part) // MEGA}" for sample in (first, last)]
        for part in ("heap_bytes", "python_rss_bytes")
    )
    report.note(
        name,
        day.cycles,
        "cycles",
        cuts=day.cuts,
        changes=day.changes,
        reconciled=day.reconciled,
        wrong=len(day.wrong),
        doubled=day.doubled,
        processor_s=round(day.processor_s),
        incidents=dict(sorted(day.incidents.items())),
        samples=[str(sample) for sample in samples],
    )
    faults = ", ".join(f"{times:,} {kind}" for kind, times in sorted(day.incidents.items()) if times)
    print(
        f"| {name} | {day.cycles:,} | {day.cuts:,} | {day.changes:,} | {faults} | {day.reconciled} | "
        f"{len(day.wrong)} | {day.doubled} | {day.processor_s:,.0f} | {first.lake.size_bytes // MEGA} and "
        f"{last.lake.size_bytes // MEGA} | {' and '.join(heaps)} | {' and '.join(pythons)} |",
        flush=True,
    )


SOURCES: Final[Mapping[str, Sequence[str]]] = {
    "spanner": [name for name in DAYS if name.startswith("spanner")],
    **{name: [name] for name in DAYS},
}
"""By the name of a run: the days that it has."""


def main() -> None:
    """Run the days, one after the other."""
    parser = arguments(__doc__ or "")
    parser.add_argument(
        "--source", nargs="+", choices=[*SOURCES], default=["spanner", "datastream", "debezium"]
    )
    parser.add_argument("--hours", type=float, default=24.0, help="simulated hours")
    parser.add_argument("--changes", type=int, default=120, help="changes of a minute, about")
    parser.add_argument("--minutes", type=float, default=None, help="maximum real minutes per day")
    options = parser.parse_args()
    report = Report("day", options)
    settings = SparkSettings(driver_memory="2g", conf={**INTERPRETED, **ONE_TASK})
    wrong = 0
    with open_session(settings, LakeSettings(str(options.work))) as spark:
        # What dead runs leave in Spark's log is of no interest.
        spark.sparkContext.setLogLevel("OFF")
        keep_classes(spark)
        for name in dict.fromkeys(name for source in options.source for name in SOURCES[source]):
            day, samples = run_day(name, spark, options)
            report_day(report, name, day, samples)
            wrong += len(day.wrong) + day.doubled
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
