"""Load: many tables, partitions or columns, long rows, one huge transaction, a large table; what each costs.

Each case runs whole cycles to published cuts, compares all rows with what was sent, and reports the first
cycle, the tenth, and the most memory of this process and of Spark. Processor seconds are those of both; wall
seconds depend on what else the machine does.
"""

import argparse
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.harness import Report, arguments, must_equal, timed
from benchmarks.load_feeds import KEY, KINDS, Feed, Row, open_feed
from benchmarks.tables import open_session
from benchmarks.usage import Meter
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.lost_commits import take_back_lost
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.on_demand.status import read_status
from cdc_platform.spark.session.spark_settings import SparkSettings

CYCLES: Final = 10
CHANGED: Final = 3
FEW: Final = 10
Rows = dict[str, dict[int, Mapping[str, str]]]


@dataclass
class Bench:
    """A session, and what all cases share."""

    options: argparse.Namespace
    report: Report
    spark: SparkSession
    lake: LakeSettings
    meter: Meter

    def scaled(self, number: int) -> int:
        """Return a size, scaled."""
        return max(1, round(number * self.options.scale))

    def open(self, kind: str, name: str, tables: Mapping[str, Sequence[str]]) -> "Loaded":
        """Return an empty source with a pipeline that reads it."""
        return Loaded(self, name, open_feed(kind, name, self.lake, self.options.work / "load", tables))

    def note(self, what: str, step: str) -> float:
        """Report the seconds of a step, and return its processor seconds."""
        use = self.meter.steps[step]
        processor_s = sum(use.processor_s.values())
        self.report.note(what, processor_s, "processor s", wall_s=round(use.wall_s, 2))
        return processor_s


@dataclass
class Loaded:
    """A pipeline under load, and what its tables must be."""

    bench: Bench
    name: str
    feed: Feed
    truth: Rows = field(default_factory=dict)
    refused: int = 0

    def cycle(self, step: str, rows: Sequence[Row], refused: int = 0) -> None:
        """Send rows, and publish them in one cycle that is measured as a step."""
        self.feed.send(rows)
        self.bench.meter.begin()
        outcome = run_cycle(self.feed.pipeline, self.bench.spark)
        self.bench.meter.end(step)
        must_equal((len(rows) - refused, refused), (outcome.order.changes, outcome.order.quarantined), step)
        seconds = " ".join(f"{name} {taken:.2f}" for name, taken in outcome.seconds.items())
        print(f"  {step}: {seconds}", flush=True)
        for row in rows[refused:]:
            self.truth.setdefault(row.table, {})[row.key] = row.values

    def verify(self) -> None:
        """Compare every table with what was sent."""
        for table, expected in self.truth.items():
            stored = self.feed.pipeline.lake.table(table)
            rows = stored.scan().to_arrow().to_pylist() if stored is not None else []
            actual = {
                int(row.pop(KEY)): {name: value for name, value in row.items() if value is not None}
                for row in rows
            }
            must_equal(len(actual), len(rows), f"keys of {table}")
            must_equal(expected == actual, True, f"whether {table} is what was sent")


def run_tables(bench: Bench) -> None:
    """Compare small cycles of a pipeline with few tables and of one with many, of which as few change."""
    for kind in bench.options.sources:
        counts = {"few": FEW, "many": bench.scaled(1000)}
        names = {size: [f"t{number:05}" for number in range(count)] for size, count in counts.items()}
        loaded = {
            size: bench.open(kind, f"tables_{kind}_{size}", dict.fromkeys(tables, ("note",)))
            for size, tables in names.items()
        }
        for size, tables in names.items():
            first = [Row(table, 1, {"note": "first"}, is_new=True) for table in tables]
            loaded[size].cycle(f"{kind}, first cycle, {counts[size]} tables", first)
            bench.note(
                f"{kind}: first cycle, {counts[size]} tables", f"{kind}, first cycle, {counts[size]} tables"
            )
        for number in range(CYCLES):
            for size, tables in names.items():
                changed = [tables[(number * CHANGED + place) % len(tables)] for place in range(CHANGED)]
                rows = [Row(table, number + 2, {"note": f"{number}"}, is_new=True) for table in changed]
                loaded[size].cycle(f"{kind}, {size}, cycle {number + 1}", rows)
        last = {
            size: bench.note(
                f"{kind}: tenth cycle, {counts[size]} tables, {CHANGED} changed",
                f"{kind}, {size}, cycle {CYCLES}",
            )
            for size in names
        }
        bench.report.note(f"{kind}: many / few", last["many"] / last["few"], "x", at_most=1.3)
        for size in names:
            _restart(bench, f"{kind}, {counts[size]} tables", loaded[size])
            loaded[size].verify()


def _restart(bench: Bench, what: str, loaded: Loaded) -> None:
    """Report what a new process does before its first cycle, and what the status costs."""
    pipeline = loaded.feed.pipeline
    again = replace(pipeline, lake=replace(pipeline.lake))
    bench.report.note(f"{what}: lost commits", timed(lambda: take_back_lost(again.lake)), "s")
    bench.report.note(f"{what}: status", timed(lambda: read_status(again)), "s")
    bench.report.note(
        f"{what}: first cycle after a restart", timed(lambda: run_cycle(again, bench.spark)), "s"
    )


CASES: Final[Mapping[str, Callable[[Bench], None]]] = {"tables": run_tables}


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", choices=CASES, default=None, help="one case; all of them otherwise")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of all sizes")
    parser.add_argument("--sources", nargs="+", choices=KINDS, default=list(KINDS), help="kinds of source")
    options = parser.parse_args()
    report = Report("load", options)
    shutil.rmtree(options.work / "load", ignore_errors=True)
    lake = LakeSettings(str(options.work / "load" / "lake"))
    for name in [options.only] if options.only else CASES:
        with open_session(SparkSettings(), lake) as spark:
            bench = Bench(options, report, spark, lake, Meter(spark, options.work / "load" / "lake"))
            with bench.meter.watch_memory():
                CASES[name](bench)
            for process, most in bench.meter.peak_bytes.items():
                report.note(f"{name}: most memory, {process}", most / 2**20, "MiB")


if __name__ == "__main__":
    main()
