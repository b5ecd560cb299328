"""Deaths at every durable effect: `python -m benchmarks.crash_points`, more than a thousand in an hour.

A pipeline of each source runs each kind of cycle once, and the lake is kept at every moment at which its
process could die: before, within and after each file that is written, each commit of the catalog and each
deletion, by pyiceberg or by Spark. Each of these lakes is then what the next process finds: it recovers, and
must have lost and doubled nothing. Further runs really die, by an exception that nothing catches, and so do
their recoveries. Ends with exit code 1 if anything is wrong.
"""

import argparse
import random
import re
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.harness import Report, arguments
from benchmarks.tables import open_session
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.frames.small import INTERPRETED, ONE_TASK
from cdc_platform.spark.session.spark_settings import SparkSettings
from cdc_platform_tests.support.crash_points.scenarios import SCENARIOS
from cdc_platform_tests.support.crash_points.series import Extent, Series, run_series
from cdc_platform_tests.support.java_classes import keep_classes


def run_scenario(name: str, spark: SparkSession, options: argparse.Namespace) -> Series:
    """Let the processes of one scenario die, and print what is wrong."""
    folder: Path = options.work / "crash_points" / re.sub(r"\W+", "-", name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    chance = random.Random(f"{options.seed}/{name}")  # noqa: S311  a benchmark's input, not a secret
    extent = Extent(options.singly, options.pairs, options.checked_every)
    with SCENARIOS[name].open(spark, folder) as trial:
        series = run_series(trial, extent, chance)
    for fault in series.faults:
        print(f"  WRONG {name}: {fault}", flush=True)
    shutil.rmtree(folder)
    return series


def note_series(report: Report, name: str, series: Series) -> None:
    """Report the deaths of one scenario."""
    report.note(
        name,
        series.deaths,
        "deaths",
        moments=series.moments,
        pairs=series.pairs,
        checked=series.checked,
        wrong=len(series.faults),
        orphans=round(series.orphans / max(1, len(series.recoveries_s)), 1),
        deleted_orphans=series.deleted_orphans,
        median_s=round(series.median_s, 2),
        longest_s=round(series.longest_s, 2),
        seconds=round(series.seconds),
    )


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", nargs="+", choices=[*SCENARIOS], default=[*SCENARIOS], help="scenarios")
    parser.add_argument("--singly", type=int, default=35, help="most moments of a scenario; 0 means each")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of deaths of each scenario")
    parser.add_argument("--checked-every", type=int, default=5, help="all checks run after one of so many")
    options = parser.parse_args()
    options.singly = options.singly or None
    report = Report("crash_points", options)
    every: list[Series] = []
    # All that a cycle and its checks do here is little.
    settings = SparkSettings(driver_memory="2g", conf={**INTERPRETED, **ONE_TASK})
    with open_session(settings, LakeSettings(str(options.work))) as spark:
        # What dead runs leave in Spark's log is of no interest.
        spark.sparkContext.setLogLevel("OFF")
        keep_classes(spark)
        for name in options.only:
            every.append(run_scenario(name, spark, options))
            note_series(report, name, every[-1])
    wrong = sum(len(series.faults) for series in every)
    report.note("all", sum(series.deaths for series in every), "deaths", wrong=wrong)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
