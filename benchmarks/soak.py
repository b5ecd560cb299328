"""Soak: runs a thousand small cycles of each source in one process, and measures what grows.

Each configuration runs in its own process, by the loop of `cdc-platform sync --continuous`, with new input
for every cycle and normal maintenance. All tables but one stay small, so that growing tables do not explain
longer cycles. After each cycle it counts the entries of Spark's cache manager, threads and file handles;
every `--every` cycles also memory after a full garbage collection, files and snapshots. At the end the
tables must equal what was sent, every check must pass, and nothing may have grown: see `judge` in
`benchmarks/soaked.py`. Ends with exit code 1 if a criterion fails.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.harness import Report, arguments
from benchmarks.soaked import Sample, Soaked, judge, markdown
from benchmarks.tables import open_session
from cdc_platform.lake.catalog.lake import SYSTEM_TABLES, Lake
from cdc_platform.lake.catalog.settings import LakeSettings
from cdc_platform.spark.session.settings import SparkSettings
from cdc_platform_tests.servers.kafka import CONNECTOR, Broker, broker, fetch_jars
from cdc_platform_tests.support.footprint import Session, tree_of
from cdc_platform_tests.support.soak import Cycle, Soak
from cdc_platform_tests.support.workload import WORKLOADS, Place, Workload, needs_broker

PIPELINE = "soak"
RESULT = "soaked.json"
GROWN_CLASSES = 12


@contextmanager
def open_workload(
    name: str, folder: Path, spark: SparkSession, lake: LakeSettings, options: argparse.Namespace
) -> Iterator[Workload]:
    """Provide a workload, with a broker of its own if it needs one."""
    with ExitStack() as stack:
        found: Broker | None = None
        if needs_broker(name):
            found = stack.enter_context(broker(folder / "broker"))
            for jar in fetch_jars(CONNECTOR, with_dependencies=False):
                spark.sql(f"ADD JAR '{jar}'")
        has_histories = "history" in name
        place = Place(folder / "in", lake, PIPELINE, options.changes, options.seed, has_histories)
        yield stack.enter_context(WORKLOADS[name](place, found))


def run_here(name: str, options: argparse.Namespace) -> Soaked:
    """Run the cycles of a configuration in this process."""
    folder: Path = options.work / "soak" / name
    shutil.rmtree(folder, ignore_errors=True)
    temporary = folder / "temporary"
    temporary.mkdir(parents=True)
    # What Spark, its libraries and the platform leave behind can then be told from what others do.
    os.environ["TMPDIR"] = str(temporary)
    os.environ["JDK_JAVA_OPTIONS"] = f"-Djava.io.tmpdir={temporary}"
    lake = LakeSettings(str(folder / "lake"))
    settings = SparkSettings(driver_memory=options.heap, conf={"spark.local.dir": str(temporary)})
    with (
        open_session(settings, lake) as spark,
        open_workload(name, folder, spark, lake, options) as workload,
    ):
        run = Run(name, Soak(workload, spark), Session.of(spark), temporary)
        try:
            run.go(options.cycles, options.every)
            faults = run.soak.faults()
        except Exception as error:  # noqa: BLE001  a run that breaks off has found something
            faults = [f"cycle {len(run.cycles) + 1}: {type(error).__name__}: {error}"]
            traceback.print_exc()
        finally:
            run.soak.close()
    return Soaked(name, run.cycles, run.samples, faults)


@dataclass
class Run:
    """The run of a configuration, with what was measured so far.

    Args:
        name: of the configuration.
        soak: runs the cycles.
        session: of Spark.
        temporary: folder for temporary files.
    """

    name: str
    soak: Soak
    session: Session
    temporary: Path
    cycles: list[Cycle] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def go(self, cycles: int, every: int) -> None:
        """Run the cycles, and take a sample at regular intervals."""
        early = dict[str, int]()
        for cycle in self.soak.run(cycles):
            self.cycles.append(cycle)
            print_cycle(self.name, cycle)
            if cycle.number % every == 0:
                self.samples.append(
                    take_sample(cycle.number, self.session, self.temporary, self.soak.pipeline.lake)
                )
                print_sample(self.samples[-1])
                early = early or self.session.histogram()
        print_grown(early, self.session.histogram())


def take_sample(cycle: int, session: Session, temporary: Path, lake: Lake) -> Sample:
    """Take the measurements that are too slow for every cycle."""
    names = [*map(lake.table, lake.table_names())]
    tables = [*map(lake.system_table, SYSTEM_TABLES), *(table for table in names if table is not None)]
    counts = [len(table.metadata.snapshots) for table in tables]
    metadata = sum(1 for _ in Path(lake.settings.path).rglob("*.metadata.json"))
    return Sample(
        cycle,
        session.memory(),
        tree_of(temporary),
        tree_of(Path(lake.settings.path)),
        max(counts),
        metadata,
    )


def print_cycle(name: str, cycle: Cycle) -> None:
    """Print a line for a cycle."""
    held, steps = cycle.held, "  ".join(f"{step} {taken:.2f}" for step, taken in cycle.steps_s.items())
    print(
        f"  {name} {cycle.number:>4}  {cycle.whole_s:5.2f} s  processor {cycle.processor_s:5.2f} s  "
        f"changes {cycle.changes:>4}  cached {held.cached_plans}  persisted {held.persisted_rdds}  "
        f"executions {held.executions}  "
        f"handles {held.python_handles} {held.java_handles}  threads {held.python_threads} "
        f"{held.java_threads} and {held.pool_threads} of pools  workers {held.workers}  {steps}",
        flush=True,
    )


def print_sample(sample: Sample) -> None:
    """Print a line for a sample."""
    facts = {**asdict(sample.memory), "temporary": sample.temporary, "lake": sample.lake}
    told = "  ".join(f"{name} {fact}" for name, fact in facts.items())
    print(f"    {told}  snapshots {sample.most_snapshots}  metadata {sample.metadata_files}", flush=True)


def print_grown(before: dict[str, int], after: dict[str, int]) -> None:
    """Print the classes of Java whose live objects have grown most."""
    grown = {name: size - before.get(name, 0) for name, size in after.items()}
    for name in sorted(grown, key=lambda one: -grown[one])[:GROWN_CLASSES]:
        print(f"    grown by {grown[name]:>12,} bytes to {after[name]:>12,}: {name}", flush=True)


def run_apart(name: str, options: argparse.Namespace) -> Soaked:
    """Run the cycles of a configuration in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.soak", "--here", "--only", name]
    told = {"cycles": options.cycles, "every": options.every, "changes": options.changes}
    told |= {"heap": options.heap, "seed": options.seed, "work": options.work}
    command += [text for option, value in told.items() for text in (f"--{option}", str(value))]
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
        return Soaked(name, [], [], [f"the process ended with exit code {process.returncode}"])
    return Soaked.from_json(json.loads(result.read_text(encoding="utf-8")))


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--cycles", type=int, default=1000, help="cycles of each configuration")
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS), help="which")
    parser.add_argument("--heap", default="2g", help="heap of Spark's driver")
    parser.add_argument("--changes", type=int, default=100, help="changes or messages for a cycle, about")
    parser.add_argument("--every", type=int, default=20, help="cycles between two samples of memory")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # Servers stop and files close as they do at the end.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    if options.here:
        (name,) = options.only
        found = json.dumps(asdict(run_here(name, options)))
        (options.work / "soak" / name / RESULT).write_text(found, encoding="utf-8")
        return
    report = Report("soak", options)
    soaked = [run_apart(name, options) for name in options.only]
    failed = sum(tell(report, one) for one in soaked)
    print(markdown(soaked))
    sys.exit(1 if failed else 0)


def tell(report: Report, soaked: Soaked) -> int:
    """Report the criteria of a configuration, and return how many of them are not met."""
    criteria = judge(soaked)
    for criterion in criteria:
        outcome = "pass" if criterion.is_met else "FAIL"
        report.note(f"{soaked.name}: {criterion.name}", criterion.value, outcome, found=criterion.summary)
    return sum(not criterion.is_met for criterion in criteria)


if __name__ == "__main__":
    main()
