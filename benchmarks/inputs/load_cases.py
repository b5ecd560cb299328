"""Cases of the load benchmark, all but the huge transaction."""

import json
from argparse import Namespace
from dataclasses import replace
from functools import partial
from typing import Final, cast

import dagster as dg

from benchmarks import growth
from benchmarks.inputs.load_feeds import NUMBER, Row, SpannerFeed
from benchmarks.measure.harness import must_equal, timed
from benchmarks.measure.load_bench import Bench, Loaded
from benchmarks.partitions import LIVING, SECOND, long_lineage
from cdc_platform.dashboard.facts import PipelineFacts, WatchedPipeline
from cdc_platform.lake.state.control import load_lineage, save_lineage
from cdc_platform.lake.state.lost_commits import revert_lost_commits
from cdc_platform.lake.state.quarantine import load_quarantine
from cdc_platform.metadata import describe_lineage
from cdc_platform.partitions import sync_partitions
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.on_demand.status import read_status

CYCLES: Final = 10
CYCLES_OF_SIZE: Final = 3
CHANGED: Final = 3
FEW: Final = 10
MAX_GROWTH: Final = 1.3
ONE_TABLE: Final = "t"


def run_tables(bench: Bench) -> None:
    """Compare small cycles of a pipeline with few tables and of one with many, of which as few change."""
    for kind in bench.options.sources:
        counts = (FEW, bench.scaled(1000))
        pipelines = {
            count: bench.open(kind, f"tables_{kind}_{count}", dict.fromkeys(_names(count), ("note",)))
            for count in counts
        }
        for count, loaded in pipelines.items():
            what = f"{kind}, {count} tables: first cycle"
            loaded.cycle(what, [Row(name, 1, {"note": "first"}, is_new=True) for name in _names(count)])
            bench.note(what)
        for number in range(1, CYCLES + 1):
            for count, loaded in pipelines.items():
                changed = [_names(count)[(number * CHANGED + place) % count] for place in range(CHANGED)]
                rows = [Row(name, number + 1, {"note": f"{number}"}, is_new=True) for name in changed]
                loaded.cycle(f"{kind}, {count} tables: cycle {number}", rows)
        last = [bench.note(f"{kind}, {count} tables: cycle {CYCLES}") for count in counts]
        bench.report.note(
            f"{kind}, {counts[1]} / {counts[0]} tables", last[1] / last[0], "x", at_most=MAX_GROWTH
        )
        for count, loaded in pipelines.items():
            _restart(bench, f"{kind}, {count} tables", loaded)
            loaded.verify()


def _names(count: int) -> list[str]:
    return [f"t{number:05}" for number in range(count)]


def _restart(bench: Bench, what: str, loaded: Loaded) -> None:
    """Report what a new process does before its first cycle, this cycle, and the status."""
    again = replace(loaded.feed.pipeline, lake=replace(loaded.feed.pipeline.lake))
    bench.report.note(f"{what}: look for lost commits", timed(partial(revert_lost_commits, again.lake)), "s")
    bench.report.note(f"{what}: status", timed(partial(read_status, again)), "s")
    bench.report.note(f"{what}: first cycle of a process", timed(partial(run_cycle, again, bench.spark)), "s")


def run_partitions(bench: Bench) -> None:
    """Compare small cycles with a few partitions, with many that have ended, and with many that live."""
    many, last = bench.scaled(10_000), []
    for past, living in ((LIVING, LIVING), (many, LIVING), (LIVING, many)):
        what = f"{past} partitions that have ended, {living} live"
        loaded = bench.open("spanner", f"partitions_{past}_{living}", {ONE_TABLE: ("note",)})
        lineage = long_lineage(past, living)
        source = cast("SpannerFeed", loaded.feed).source
        source.now_micros = (
            max(partition.position_micros for partition in lineage.partitions.values()) + SECOND
        )
        source.first_micros = source.now_micros
        save_lineage(loaded.feed.pipeline.lake, replace(lineage, cycle=0))
        for number in range(1, CYCLES + 1):
            rows = [Row(ONE_TABLE, number, {"note": "x"}, is_new=True)]
            loaded.cycle(f"{what}: cycle {number}", rows)
        last.append(bench.note(f"{what}: cycle {CYCLES}"))
        loaded.verify()
        _show(bench, what, loaded)
    bench.report.note("many / few ended partitions", last[1] / last[0], "x", at_most=MAX_GROWTH)
    bench.report.note("many / few live partitions", last[2] / last[0], "x")
    _follow_keys(bench, many)


def _show(bench: Bench, what: str, loaded: Loaded) -> None:
    pipeline = loaded.feed.pipeline
    lineage = load_lineage(pipeline.lake)
    must_equal(True, lineage is not None, "whether there is a lineage")
    if lineage is not None:
        bench.report.note(f"{what}: metadata of the lineage", timed(partial(describe_lineage, lineage)), "s")
    watched = WatchedPipeline(pipeline, 60.0)
    facts = watched.read_facts()
    must_equal(True, isinstance(facts, PipelineFacts), f"whether the page can show it: {facts}")
    bench.report.note(f"{what}: facts of the page", timed(watched.read_facts), "s")
    history = timed(partial(watched.read_history, cast("PipelineFacts", facts), 24.0))
    bench.report.note(f"{what}: charts of the page", history, "s")


def _follow_keys(bench: Bench, living: int) -> None:
    """Report how long Dagster's partitions take to follow so many that live, and as many that took over."""
    with dg.DagsterInstance.ephemeral() as instance:
        for what, past in (("added", 0), ("replaced", living)):
            lineage = long_lineage(past, living)
            taken = timed(partial(sync_partitions, instance, "load", lineage))
            bench.report.note(f"{living} partitions of Dagster {what}", taken, "s")


def run_columns(bench: Bench) -> None:
    """Run small cycles of a table with many columns, and of one to which as many are added at once."""
    columns = bench.scaled(2000)
    names = [f"{NUMBER if number % 2 else 'c'}{number:05}" for number in range(columns)]
    for kind in bench.options.sources:
        wide, grown = f"{kind}, {columns} columns", f"{kind}, {columns} columns at once"
        # Types of columns that come up later are declared beforehand, and read from the others.
        initial = names if kind == "debezium" else names[:FEW]
        loaded = bench.open(kind, f"columns_{kind}", {ONE_TABLE: names, "grown": initial})
        for number in range(CYCLES):
            rows = [Row(ONE_TABLE, number, dict.fromkeys(names, f"{number}"), is_new=True)]
            loaded.cycle(f"{wide}: cycle {number + 1}", rows)
        for what in (f"{wide}: cycle 1", f"{wide}: cycle {CYCLES}"):
            bench.note(what)
        loaded.cycle(
            f"{kind}, {FEW} columns", [Row("grown", 1, dict.fromkeys(names[:FEW], "1"), is_new=True)]
        )
        bench.note(f"{kind}, {FEW} columns")
        loaded.cycle(grown, [Row("grown", 2, dict.fromkeys(names, "2"), is_new=True)])
        bench.note(grown)
        loaded.verify()
        again = replace(loaded.feed.pipeline, lake=replace(loaded.feed.pipeline.lake))
        bench.report.note(
            f"{wide}: first cycle of a process", timed(partial(run_cycle, again, bench.spark)), "s"
        )


def run_rows(bench: Bench) -> None:
    """Run cycles of long rows, and one with a row that is longer than what Spark reads."""
    length = bench.scaled(10_000_000)
    for kind in bench.options.sources:
        loaded = bench.open(kind, f"rows_{kind}", {ONE_TABLE: ("note",)})
        for number in range(1, CYCLES + 1):
            text = f"{number:04}" * (length // 4)
            loaded.cycle(
                f"{kind}, rows of {length:,} characters: cycle {number}",
                [Row(ONE_TABLE, number, {"note": text}, is_new=True)],
            )
        for number in (1, CYCLES):
            bench.note(f"{kind}, rows of {length:,} characters: cycle {number}")
        text = "x" * 21_000_000
        loaded.cycle(
            f"{kind}, a row that is too long", [Row(ONE_TABLE, 0, {"note": text}, is_new=True)], refused=1
        )
        for record in load_quarantine(loaded.feed.pipeline.lake):
            print(f"  {kind}: refused: {json.dumps(record.reason)}", flush=True)
        loaded.verify()


def run_size(bench: Bench) -> None:
    """Merge small cycles into a large table, which an initial copy has brought."""
    rows = bench.scaled(100_000_000)
    options = Namespace(seed=bench.options.seed, changes=100, chunk_rows=250_000, even=False)
    candidate = growth.open_candidate(bench.lake, rows, options)
    copied = f"initial copy of {rows:,} rows"
    bench.meter.begin()
    candidate.copy(bench.spark)
    bench.meter.end(copied)
    bench.note(copied)
    # The last cycles merge into files that compaction has rewritten in between.
    for changes, when in ((100, ""), (1_000, ""), (10_000, ""), (100_000, ""), (100, " after compaction")):
        candidate.changes = changes
        what = f"{rows:,} rows, {changes:,} changes{when}"
        for number in range(1, CYCLES_OF_SIZE + 1):
            bench.meter.begin()
            candidate.cycle(bench.spark)
            bench.meter.end(f"{what}: cycle {number}")
            bench.note(f"{what}: cycle {number}")
    bench.report.note(f"{rows:,} rows: slowest maintenance", max(candidate.seconds["maintain"]), "s")
    candidate.verify(bench.spark)
    largest = f"{rows:,} rows: the largest of {candidate.files} files"
    bench.report.note(largest, candidate.largest_rows, "rows")
