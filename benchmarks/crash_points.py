"""Deaths at every durable effect: `python -m benchmarks.crash_points`.

A pipeline of each source runs each kind of cycle once, and the lake is kept at every moment at which its
process could die: before, within and after each file that is written, each commit of the catalog and each
deletion, by pyiceberg or by Spark. Each of these lakes is then what the next process finds: it recovers, and
must have lost and doubled nothing. Further runs really die, by an exception that nothing catches, and so do
their recoveries. Ends with exit code 3 if anything is wrong.

`--failing full` lets effects fail instead, while the process lives on: a full disk, a read-only or broken
one, a commit that is refused. The run has to end by the error that says so, and the same process continues.

`--overtaken published` pauses the run after an effect or before a look at the catalog, while another pipeline
of this process catches up, gets more input and catches up twice more; then the run goes on. With
`--overtaken ordered` the other one then extends the log once more, and merges nothing of that. Both share
Java; other threads of the run do not pause.

`--minutes 55` gives each kind its share of so much time; `--processes 2` shares the kinds among processes;
`--resume` leaves out the kinds that the file of results has already, and the table at the end has both.
"""

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from benchmarks.measure.harness import Report, arguments, must_equal
from benchmarks.measure.tables import open_session
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.launch.spark_settings import SparkSettings
from cdc_platform.spark.session.session_settings import INTERPRETED, ONE_TASK
from cdc_platform_tests.support.crash_points.failures import run_failures
from cdc_platform_tests.support.crash_points.overtaking import Lead, run_overtaking
from cdc_platform_tests.support.crash_points.points import Failure
from cdc_platform_tests.support.crash_points.scenarios import SCENARIOS
from cdc_platform_tests.support.crash_points.series import Extent, Series, run_series
from cdc_platform_tests.support.crash_points.spark_catalog import compile_quickly
from cdc_platform_tests.support.footprints.footprint import Session
from cdc_platform_tests.support.footprints.java_classes import keep_classes

SAME: Final = ("seed", "singly", "failing", "overtaken")
"""Options of the runs whose results belong together."""
WRONG: Final = 3
"""Exit code if anything is wrong; a process that ends by a traceback, without results, has 1."""


def run_scenario(
    name: str, spark: SparkSession, options: argparse.Namespace, until_s: float | None
) -> Series:
    """Let the processes of one scenario die or fail, at most until a moment, and print what is wrong."""
    folder: Path = options.work / "crash_points" / re.sub(r"\W+", "-", name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    chance = random.Random(f"{options.seed}/{name}")  # noqa: S311  a benchmark's input, not a secret
    extent = Extent(options.singly, options.pairs, options.checked_every, until_s=until_s)
    with SCENARIOS[name].open(spark, folder) as trial:
        if options.overtaken:
            series = run_overtaking(trial, Lead(options.overtaken), extent, chance)
        elif options.failing is None:
            series = run_series(trial, extent, chance)
        else:
            series = run_failures(trial, Failure[options.failing.upper()], extent, chance)
    for fault in series.faults:
        print(f"  WRONG {name}: {fault}", flush=True)
    shutil.rmtree(folder)
    return series


def _events(options: argparse.Namespace) -> str:
    if options.overtaken:
        return "pauses"
    return "deaths" if options.failing is None else "failures"


def note_series(report: Report, name: str, series: Series, processor_s: float) -> None:
    """Report the deaths of one scenario."""
    report.note(
        name,
        series.deaths,
        _events(report.options),
        moments=series.moments,
        pairs=series.pairs,
        checked=series.checked,
        wrong=len(series.faults),
        orphans=round(series.orphans / max(1, series.checked), 1),
        deleted_orphans=series.deleted_orphans,
        median_s=round(series.median_s, 2),
        longest_s=round(series.longest_s, 2),
        seconds=round(series.seconds),
        processor_s=round(processor_s),
    )


def load_results(report: Report) -> dict[str, dict[str, Any]]:
    """Return what the file of results has of each kind for the same options: its newest run."""
    results = dict[str, dict[str, Any]]()
    lines = report.path.read_text(encoding="utf-8").splitlines() if report.path.exists() else ()
    for result in map(json.loads, lines):
        facts = result["facts"]
        if result["what"] in SCENARIOS and all(facts.get(name) == report.facts[name] for name in SAME):
            results[result["what"]] = result
    return results


def print_table(results: Mapping[str, Mapping[str, Any]]) -> int:
    """Print by kind and source at how many moments something happened, and return how much is wrong."""
    sources, kinds = (dict.fromkeys(name.partition(": ")[end] for name in results) for end in (0, 2))
    print(f"| kind | {' | '.join(sources)} |")
    print(f"| --- |{' --- |' * len(sources)}")
    for kind in kinds:
        cells = (_describe_extent(results.get(f"{source}: {kind}")) for source in sources)
        print(f"| {kind} | {' | '.join(cells)} |")
    summed = ("value", "pairs", "checked", "deleted_orphans", "seconds", "processor_s", "wrong")
    deaths, pairs, checked, orphans, seconds, processor_s, wrong = (
        # A result of an older version lacks columns.
        sum(of.get(name, 0) for of in results.values())
        for name in summed
    )
    recoveries = [of["median_s"] for of in results.values() if "median_s" in of]
    longest_s = max((of.get("longest_s", 0) for of in results.values()), default=0)
    print(f"{deaths} deaths, failures or pauses of {len(results)} kinds, {pairs} pairs, {wrong} wrong")
    print(f"{seconds} s, {processor_s} s of processors; all checks {checked} times")
    print(f"recoveries: {min(recoveries, default=0)} to {max(recoveries, default=0)} s (medians of kinds)")
    print(f"longest recovery: {longest_s} s; orphan files deleted: {orphans}")
    return int(wrong)


def _describe_extent(result: Mapping[str, Any] | None) -> str:
    """Return at how many moments of a kind something happened, and of how many, unless it was each."""
    if result is None:
        return ""
    singly, moments = result["value"] - 2 * result.get("pairs", 0), result.get("moments", "?")
    return f"{singly}" if singly == moments else f"{singly} of {moments}"


def run_in_processes(names: Sequence[str], report: Report) -> None:
    """Let processes side by side run these scenarios, which add to one file of results."""
    options, processes = report.options, []
    for number in range(min(options.processes, len(names))):
        share = ["--processes", "1", "--only", *names[number :: options.processes]]
        places = ["--work", str(options.work / f"process_{number + 1}"), "--out", str(report.path)]
        command = [sys.executable, "-m", "benchmarks.crash_points", *sys.argv[1:], *share, *places]
        processes.append(subprocess.Popen(command))
    codes = {process.wait() for process in processes}
    # The table has what is wrong.
    must_equal(set(), codes - {0, WRONG}, "exit codes of processes that failed")


def run_scenarios(names: Sequence[str], report: Report) -> None:
    """Run these scenarios one after the other."""
    options = report.options
    end_s = time.monotonic() + (options.minutes or 0) * 60
    compile_quickly()
    # All that a cycle and its checks do here is little.
    settings = SparkSettings(driver_memory="2g", conf={**INTERPRETED, **ONE_TASK})
    with open_session(settings, LakeSettings(str(options.work))) as spark:
        # What dead runs leave in Spark's log is of no interest.
        spark.sparkContext.setLogLevel("OFF")
        keep_classes(spark)
        measured = Session.of(spark)
        for number, name in enumerate(names):
            now_s = time.monotonic()
            until_s = now_s + (end_s - now_s) / (len(names) - number) if options.minutes else None
            begun_s = measured.measure().processor_s
            series = run_scenario(name, spark, options, until_s)
            note_series(report, name, series, measured.measure().processor_s - begun_s)


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", nargs="+", choices=[*SCENARIOS], default=[*SCENARIOS], help="scenarios")
    parser.add_argument("--singly", type=int, default=35, help="moments per scenario at most; 0 for all")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of deaths of each scenario")
    parser.add_argument("--checked-every", type=int, default=5, help="run all checks after every Nth")
    kinds = [failure.name.lower() for failure in Failure]
    parser.add_argument("--failing", choices=kinds, default=None, help="how effects fail, instead of deaths")
    leads = [lead.value for lead in Lead]
    parser.add_argument("--overtaken", choices=leads, default=None, help="pauses while another goes ahead")
    parser.add_argument("--minutes", type=float, default=None, help="maximum time, shared by all scenarios")
    parser.add_argument("--resume", action="store_true", help="leave out what the file of results has")
    parser.add_argument("--processes", type=int, default=1, help="side by side, each with some of the kinds")
    options = parser.parse_args()
    options.singly = options.singly or None
    report = Report("crash_points", options)
    results = load_results(report) if options.resume else {}
    left = [name for name in options.only if name not in results]
    if options.processes > 1:
        run_in_processes(left, report)
    else:
        run_scenarios(left, report)
    done = load_results(report)
    wrong = print_table({name: done[name] for name in options.only if name in done})
    idle = [name for name in options.only if not done.get(name, {}).get("value")]
    if idle:
        print(f"nothing happened in: {', '.join(idle)}")
    # A part of some minutes may be too short for a kind.
    sys.exit(WRONG if wrong or (idle and options.minutes is None) else 0)


if __name__ == "__main__":
    main()
