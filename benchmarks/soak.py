"""Soak: runs a thousand small cycles of each source in one process, and measures what grows.

Each source runs in its own process, by the loop of `cdc-platform sync --continuous`, with new input for every
cycle and normal maintenance. A source that can be declared in several ways has a pipeline for each of them,
and these take turns. All tables but one stay small, so that growing tables do not explain
longer cycles. After each cycle it counts the entries of Spark's cache manager, threads and file handles;
every `--every` cycles also memory after a full garbage collection, files and snapshots. At the end the
tables must equal what was sent, every check must pass, and nothing may have grown: see `judge` in
`benchmarks/measure/soak_results.py`. Ends with exit code 1 if a criterion fails.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from pyiceberg.table import Table
from pyspark.sql import SparkSession

from benchmarks.measure.harness import Report, arguments
from benchmarks.measure.soak_results import Sample, SoakResult, judge, markdown
from benchmarks.measure.tables import open_session
from cdc_platform.lake.catalog.lake import Lake, own_tables
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import head, number_of
from cdc_platform.spark.launch.spark_settings import SparkSettings
from cdc_platform_tests.servers.kafka import Broker, broker
from cdc_platform_tests.support.footprints.footprint import Session, tree_of
from cdc_platform_tests.support.footprints.soak import Cycle, Soak, take_turns
from cdc_platform_tests.support.workloads.workload import WORKLOADS, Place, needs_broker

SOURCES: Final[Mapping[str, Sequence[str]]] = {
    "spanner": ("spanner",),
    "datastream": ("datastream_history", "datastream_keyless"),
    "debezium_files": ("debezium_omit_files", "debezium_enrich_files", "debezium_veto_files"),
    "debezium_kafka": ("debezium_omit_kafka", "debezium_enrich_kafka", "debezium_veto_kafka"),
}
"""Workloads that take turns in one process, by the name of the run."""
RUNS: Final[Mapping[str, Sequence[str]]] = {**{name: (name,) for name in WORKLOADS}, **SOURCES}
"""All that can be run; a workload alone helps to find what grows."""
RESULT: Final = "soak.json"
GROWN_CLASSES: Final = 12


@contextmanager
def open_soaks(
    names: Sequence[str], folder: Path, spark: SparkSession, lake: LakeSettings, options: argparse.Namespace
) -> Iterator[list[Soak]]:
    """Open a soak for each workload, with one broker if any of them needs it."""
    with ExitStack() as stack:
        shared: Broker | None = None
        if any(map(needs_broker, names)):
            shared = stack.enter_context(broker(folder / "broker"))
        soaks = []
        for name in names:
            place = Place(folder / name, lake, name, options.changes, options.seed, "history" in name)
            soaks.append(Soak(stack.enter_context(WORKLOADS[name](place, shared)), spark))
            stack.callback(soaks[-1].close)
        yield soaks


def run_locally(name: str, options: argparse.Namespace) -> SoakResult:
    """Run the cycles of a source in this process."""
    folder: Path = options.work / "soak" / name
    shutil.rmtree(folder, ignore_errors=True)
    temporary = folder / "temporary"
    temporary.mkdir(parents=True)
    # This separates what Spark, its libraries and the platform leave behind from what others do.
    os.environ["TMPDIR"] = str(temporary)
    os.environ["JDK_JAVA_OPTIONS"] = f"-Djava.io.tmpdir={temporary}"
    lake = LakeSettings(str(folder / "lake"))
    settings = SparkSettings(driver_memory=options.heap, conf={"spark.local.dir": str(temporary)})
    with (
        open_session(settings, lake) as spark,
        open_soaks(RUNS[name], folder, spark, lake, options) as soaks,
    ):
        run = Run(soaks, Session.of(spark), temporary)
        try:
            run.go(options.cycles, options.every)
            faults = [fault for soak in soaks for fault in soak.faults()]
        except Exception as error:  # noqa: BLE001  a run that breaks off has found something
            faults = [f"cycle {len(run.cycles) + 1}: {type(error).__name__}: {error}"]
            traceback.print_exc()
    return SoakResult(name, run.cycles, run.samples, faults)


@dataclass
class Run:
    """The run of a source, with what was measured so far.

    Args:
        soaks: run the cycles, in turn.
        session: of Spark.
        temporary: folder for temporary files.
    """

    soaks: Sequence[Soak]
    session: Session
    temporary: Path
    cycles: list[Cycle] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def go(self, cycles: int, every: int) -> None:
        """Run the cycles, and take a sample at regular intervals."""
        early = dict[str, int]()
        lakes = [soak.pipeline.lake for soak in self.soaks]
        for cycle in take_turns(self.soaks, cycles):
            self.cycles.append(cycle)
            print_cycle(cycle)
            if cycle.number % every == 0:
                self.samples.append(take_sample(cycle.number, self.session, self.temporary, lakes))
                print_sample(self.samples[-1])
                early = early or self.session.histogram()
        print_grown(early, self.session.histogram())


def take_sample(cycle: int, session: Session, temporary: Path, lakes: Sequence[Lake]) -> Sample:
    """Take the measurements that are too slow for every cycle; the lakes lie in one folder."""
    snapshots = [len(table.metadata.snapshots) for lake in lakes for table in tables_of(lake)]
    folder = Path(lakes[0].settings.path)
    metadata = sum(1 for _ in folder.rglob("*.metadata.json"))
    rows = Counter[str]()
    for lake in lakes:
        rows.update({name: rows_of(lake.system_table(name)) for name in own_names(lake)})
    return Sample(
        cycle, session.memory(), tree_of(temporary), tree_of(folder), max(snapshots), metadata, dict(rows)
    )


def own_names(lake: Lake) -> Iterable[str]:
    """Return the names of the platform's own tables."""
    return own_tables(delivers_events=lake.delivers_events)


def rows_of(table: Table) -> int:
    """Return the number of rows of a table."""
    newest = head(table)
    return (number_of(newest, "total-records") or 0) if newest is not None else 0


def tables_of(lake: Lake) -> Iterator[Table]:
    """Return all tables of a pipeline."""
    yield from map(lake.system_table, own_names(lake))
    for name in lake.table_names():
        if (table := lake.table(name)) is not None:
            yield table


def print_cycle(cycle: Cycle) -> None:
    """Print a line for a cycle."""
    sizes, steps = cycle.footprint, "  ".join(f"{step} {taken:.2f}" for step, taken in cycle.steps_s.items())
    print(
        f"  {cycle.pipeline} {cycle.number:>4}  {cycle.whole_s:5.2f} s  "
        f"processor {cycle.processor_s:5.2f} s  changes {cycle.changes:>4}  "
        f"cached {sizes.cached_plans}  persisted {sizes.persisted_rdds}  "
        f"executions {sizes.executions}  "
        f"handles {sizes.python_handles} {sizes.java_handles}  threads {sizes.python_threads} "
        f"{sizes.java_threads} and {sizes.pool_threads} of pools  workers {sizes.workers}  {steps}",
        flush=True,
    )


def print_sample(sample: Sample) -> None:
    """Print a line for a sample."""
    facts = {**asdict(sample.memory), "temporary": sample.temporary, "lake": sample.lake}
    line = "  ".join(f"{name} {fact}" for name, fact in facts.items())
    rows = "  ".join(f"{name} {count}" for name, count in sample.rows.items())
    print(
        f"    {line}  snapshots {sample.max_snapshots}  metadata {sample.metadata_files}  rows of {rows}",
        flush=True,
    )


def print_grown(before: dict[str, int], after: dict[str, int]) -> None:
    """Print the classes of Java whose live objects have grown most."""
    grown = {name: size - before.get(name, 0) for name, size in after.items()}
    for name in sorted(grown, key=lambda item: -grown[item])[:GROWN_CLASSES]:
        print(f"    grown by {grown[name]:>12,} bytes to {after[name]:>12,}: {name}", flush=True)


def run_in_child(name: str, options: argparse.Namespace) -> SoakResult:
    """Run the cycles of a source in a separate process."""
    command = [sys.executable, "-m", "benchmarks.soak", "--in-process", "--only", name]
    arguments = {"cycles": options.cycles, "every": options.every, "changes": options.changes}
    arguments |= {"heap": options.heap, "seed": options.seed, "work": options.work}
    command += [text for option, value in arguments.items() for text in (f"--{option}", str(value))]
    result: Path = options.work / "soak" / name / RESULT
    result.unlink(missing_ok=True)
    with subprocess.Popen(command) as process:
        try:
            process.wait()
        except BaseException:
            # It stops its servers by itself.
            process.terminate()
            raise
    if process.returncode or not result.exists():
        return SoakResult(name, [], [], [f"the process ended with exit code {process.returncode}"])
    return SoakResult.from_json(json.loads(result.read_text(encoding="utf-8")))


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--cycles", type=int, default=1000, help="cycles of each source")
    parser.add_argument("--only", nargs="+", choices=list(RUNS), default=list(SOURCES), help="which")
    parser.add_argument("--heap", default="2g", help="heap of Spark's driver")
    parser.add_argument("--changes", type=int, default=100, help="changes or messages for a cycle, about")
    parser.add_argument("--every", type=int, default=20, help="cycles between two samples of memory")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # Servers stop and files close as they do at the end.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    if options.in_process:
        (name,) = options.only
        result_text = json.dumps(asdict(run_locally(name, options)))
        (options.work / "soak" / name / RESULT).write_text(result_text, encoding="utf-8")
        return
    report = Report("soak", options)
    results = [run_in_child(name, options) for name in options.only]
    failed = sum(report_soak(report, item) for item in results)
    print(markdown(results))
    sys.exit(1 if failed else 0)


def report_soak(report: Report, result: SoakResult) -> int:
    """Report the criteria of a run, and return how many of them are not met."""
    criteria = judge(result)
    for criterion in criteria:
        outcome = "pass" if criterion.is_met else "FAIL"
        report.note(f"{result.name}: {criterion.name}", criterion.value, outcome, found=criterion.summary)
    return sum(not criterion.is_met for criterion in criteria)


if __name__ == "__main__":
    main()
