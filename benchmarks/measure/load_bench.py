"""A pipeline under load: its cycles are measured, and its tables compared with what was sent."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.inputs.load_feeds import KEY, Feed, Row, open_feed
from benchmarks.measure.harness import Report, must_equal
from benchmarks.measure.usage import Meter
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import ORDERING_KEY
from cdc_platform.pipeline.cycle import CycleOutcome, run_cycle

Values = Mapping[str, str]


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
        return max(1, round(number * float(self.options.scale)))

    def open(self, kind: str, name: str, tables: Mapping[str, Sequence[str]]) -> "Loaded":
        """Return an empty source with a pipeline that reads it."""
        return Loaded(self, open_feed(kind, name, self.lake, self.options.work / "load", tables))

    def note(self, what: str) -> float:
        """Report what a step used, and return its processor seconds."""
        use = self.meter.steps[what]
        processor_s = sum(use.processor_s.values())
        written_mib = round(use.written_bytes / 2**20, 1)
        self.report.note(
            what, processor_s, "processor s", wall_s=round(use.wall_s, 2), written_mib=written_mib
        )
        return processor_s


@dataclass
class Loaded:
    """A source, the pipeline that reads it, and what its tables must be."""

    bench: Bench
    feed: Feed
    truth: dict[str, dict[int, Values]] = field(default_factory=dict)

    def cycle(self, what: str, rows: Sequence[Row], refused: int = 0) -> CycleOutcome:
        """Send rows, of which the last are refused, and publish them in a cycle that is measured."""
        self.feed.send(rows)
        self.bench.meter.begin()
        outcome = run_cycle(self.feed.pipeline, self.bench.spark)
        self.bench.meter.end(what)
        sound = len(rows) - refused
        must_equal((sound, refused), (outcome.order.changes, outcome.order.quarantined), what)
        seconds = " ".join(f"{name} {taken:.2f}" for name, taken in outcome.seconds.items())
        print(f"  {what}: {seconds}", flush=True)
        for row in rows[:sound]:
            self.truth.setdefault(row.table, {})[row.key] = row.values
        return outcome

    def verify(self) -> None:
        """Compare every table with what was sent."""
        for table, expected in self.truth.items():
            stored = self.feed.pipeline.lake.table(table)
            rows = stored.scan().to_arrow().to_pylist() if stored is not None else []
            must_equal(len(expected), len(rows), f"rows of {table}")
            must_equal(True, expected == dict(map(_texts, rows)), f"whether {table} is what was sent")


def _texts(row: Mapping[str, Any]) -> tuple[int, Values]:
    values = {name: str(value) for name, value in row.items() if value is not None}
    values.pop(ORDERING_KEY, None)
    return int(values.pop(KEY)), values
