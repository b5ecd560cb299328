"""The cost of many partitions: the same traffic from 1, 10, 100 and 1,000 of them, and a long lineage.

With `--modes` the same traffic is read in both partition modes instead, in turns, in this process.
"""

import json
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from benchmarks.measure.harness import Report, arguments, interleaved, must_equal, timed
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.control import load_lineage, save_lineage
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.base.schemas import RAW_CHANGE_RECORDS
from cdc_platform.model.base.timestamps import from_rfc3339
from cdc_platform.model.stream.lineage import Lineage, Partition, PartitionState, advance, prune
from cdc_platform.model.stream.read_windows import (
    ReadPlan,
    ReadRequest,
    ReadWindow,
    WindowOutcome,
    WindowReport,
)
from cdc_platform.model.stream.window_plans import plan_windows
from cdc_platform.pipeline.checks.lineage_checks import find_violations
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.simulator.wire.simulator_settings import Dialect, PartitionMode
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.sources.spanner.stream.window_pool import read_together
from cdc_platform.sources.spanner.stream.window_reader import read_window
from cdc_platform.spark.launch.spark_settings import SparkSettings

SECOND: Final = 1_000_000
ANSWERS_WITHIN_S: Final = 300
NO_CHURN_S: Final = 1_000_000
LIVING: Final = 200
MODE_PARTITIONS: Final = 10
START: Final = 1_790_000_000 * SECOND


@dataclass
class Stream:
    """A simulated stream in a separate process, and the windows that have its traffic."""

    source: SpannerSource
    windows: tuple[ReadWindow, ...]
    records: int = 0
    changes: int = 0
    processor_s: float = 0.0
    """Of this process, at the last read."""

    def read(self) -> float:
        """Read all windows in this process, and return the seconds that it takes."""
        begin, processor = time.perf_counter(), time.process_time()
        batches = list(read_together(partial(read_window, self.source.client, 1), self.windows))
        taken, self.processor_s = time.perf_counter() - begin, time.process_time() - processor
        rows = [row for batch in batches for row in batch.select(["kind", "mods", "read_window"]).to_pylist()]
        reports = [row["read_window"]["outcome"] for row in rows if row["read_window"] is not None]
        must_equal(["complete"] * len(self.windows), reports, "outcomes of the windows")
        mods = [row["mods"] for row in rows if row["kind"] == "data_change"]
        self.records, self.changes = len(mods), sum(map(len, mods))
        return taken

    def read_by_spark(self, spark: SparkSession, tasks: int) -> float:
        """Let Spark read all windows, and return the seconds that it takes."""
        records = self.source.read(spark, 1, ReadPlan(self.windows), tasks)
        frame = records.through(iter, RAW_CHANGE_RECORDS)
        return timed(lambda: frame.write.format("noop").mode("overwrite").save())


@contextmanager
def open_stream(
    options: Namespace,
    partitions: int,
    life_s: float = NO_CHURN_S,
    mode: PartitionMode = PartitionMode.IMMUTABLE_KEY_RANGE,
    dialect: Dialect = Dialect.GOOGLESQL,
) -> Iterator[Stream]:
    """Provide the traffic over so many partitions, which do not end unless a life is given."""
    names = options.work / f"partitions-{partitions}-{mode}-{dialect}.json"
    names.unlink(missing_ok=True)
    arguments = {"seed": options.seed, "partitions": partitions, "partition-life": life_s}
    arguments |= {"rate": options.rate, "age": options.seconds + 5, "names": names}
    arguments |= {"partition-mode": mode, "dialect": dialect}
    command = [sys.executable, "-m", "cdc_platform.cli", "simulate"]
    command += [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            description = _named(names, server)
            source = SpannerSource(SpannerSettings(**description))
            yield Stream(
                source, _windows(source, from_rfc3339(description["start_timestamp"]), options.seconds)
            )
            source.close()
        finally:
            server.terminate()


def _named(names: Path, server: "subprocess.Popen[bytes]") -> dict[str, Any]:
    deadline = time.monotonic() + ANSWERS_WITHIN_S
    while not names.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"The simulator does not answer; it returned {server.poll()}")
        time.sleep(0.05)
    description: dict[str, Any] = json.loads(names.read_text(encoding="utf-8"))
    return description


def _windows(source: SpannerSource, origin_micros: int, seconds: float) -> tuple[ReadWindow, ...]:
    root = ReadWindow(ROOT_TOKEN, origin_micros - 1, origin_micros)
    rows = [row for batch in read_window(source.client, 1, root) for row in batch.to_pylist()]
    tokens = [child["token"] for row in rows for child in row["child_partitions"] or ()]
    return tuple(
        ReadWindow(token, origin_micros - 1, origin_micros + int(seconds * SECOND)) for token in tokens
    )


def compare_reads(options: Namespace, report: Report, spark: SparkSession) -> None:
    """Read the same traffic from ever more partitions, in this process and by Spark, in turns."""
    with ExitStack() as stack:
        streams = {number: stack.enter_context(open_stream(options, number)) for number in options.partitions}
        for stream in streams.values():
            # The simulator writes its records when they are first wanted.
            stream.read()
        counts = {stream.changes for stream in streams.values()}
        must_equal(1, len(counts), "numbers of changes, for all partitions")
        compare_cores(options, report, streams)
        compare_tasks(options, report, streams, spark)


def compare_modes(options: Namespace, report: Report) -> None:
    """Report what a core of the reader makes of the same changes in both partition modes and dialects."""
    for dialect in Dialect:
        with ExitStack() as stack:
            streams = {
                f"{dialect.value}, {mode.value}": stack.enter_context(
                    open_stream(options, MODE_PARTITIONS, mode=mode, dialect=dialect)
                )
                for mode in PartitionMode
            }
            for stream in streams.values():
                stream.read()
            counts = {stream.changes for stream in streams.values()}
            must_equal(1, len(counts), "numbers of changes, in all modes")

            def read(stream: Stream) -> float:
                stream.read()
                return stream.processor_s

            candidates = {name: partial(read, stream) for name, stream in streams.items()}
            seconds = interleaved(options.rounds, candidates)
            report.compare(seconds, next(iter(streams)), min(counts), "changes/s/core")


def compare_cores(options: Namespace, report: Report, streams: Mapping[int, Stream]) -> None:
    """Report what a core of the reader makes of the traffic; the simulator has the other one."""
    processor: dict[int, list[float]] = {number: [] for number in streams}

    def read(number: int) -> float:
        streams[number].read()
        processor[number].append(streams[number].processor_s)
        return streams[number].processor_s

    names = {number: f"{number} partitions, processor" for number in streams}
    seconds = interleaved(options.rounds, {names[number]: partial(read, number) for number in streams})
    fewest = min(streams)
    for number, stream in streams.items():
        best = min(processor[number])
        report.note(f"{number} partitions", stream.records / best, "records/s/core", records=stream.records)
        report.note(f"{number} partitions", 1000 * best / number, "ms a window")
    report.compare(seconds, names[fewest], streams[fewest].changes, "changes/s/core")


def compare_tasks(
    options: Namespace, report: Report, streams: Mapping[int, Stream], spark: SparkSession
) -> None:
    """Report what Spark needs for the same, and for one number of partitions with a task for each."""
    candidates: dict[str, Callable[[], float]] = {
        f"{number} partitions, Spark": partial(stream.read_by_spark, spark, PipelineSettings.read_tasks)
        for number, stream in streams.items()
    }
    middle = sorted(streams)[len(streams) // 2]
    each = partial(streams[middle].read_by_spark, spark, middle)
    candidates[f"{middle} partitions, Spark, a task for each"] = each
    for warm_up in candidates.values():
        warm_up()
    seconds = interleaved(options.rounds, candidates)
    report.compare(seconds, f"{min(streams)} partitions, Spark", streams[middle].changes, "changes/s")


def long_lineage(past: int, living: int) -> Lineage:
    """Return a lineage of partitions that moved for generations, of which the last one lives."""
    partitions = {ROOT_TOKEN: Partition(ROOT_TOKEN, (), PartitionState.FINISHED, START, START - 1, 0, 1, 1)}
    tokens = [f"{number:08}{'x' * 80}" for number in range(past + living)]
    for number, token in enumerate(tokens):
        generation = number // living
        parent = tokens[number - living] if generation else ROOT_TOKEN
        start, end = START + generation * SECOND, START + (generation + 1) * SECOND - 1
        is_over = number < past
        state = PartitionState.FINISHED if is_over else PartitionState.RUNNING
        created, running = 2 * generation, 2 * generation + 2
        finished = running + 1 if is_over else None
        partitions[token] = Partition(token, (parent,), state, start, end, created, running, finished)
    return Lineage(partitions, 2 * (past // living) + 3)


def measure_lineage(options: Namespace, report: Report) -> None:
    """Plan a cycle on a long lineage, and bring it one cycle further, through the lake."""
    lineage = long_lineage(options.past, LIVING)
    must_equal([], find_violations(lineage), "violations of the lineage")
    folder = options.work / "lineage"
    shutil.rmtree(folder, ignore_errors=True)
    writer, reader = (Lake(LakeSettings(str(folder)), "lineage") for _ in range(2))
    save_lineage(writer, lineage)
    end = max(partition.position_micros for partition in lineage.partitions.values()) + 20 * SECOND
    steps: dict[str, float] = {}

    def step(name: str, work: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        outcome = work()
        steps[name] = time.perf_counter() - begin
        return outcome

    loaded = step("load", lambda: load_lineage(reader))
    must_equal(expected=True, actual=lineage == loaded, what="the lineage that the lake has")
    windows = step("plan", lambda: plan_windows(loaded, ReadRequest(end)))
    must_equal(LIVING, len(windows), "windows")
    steps["load and plan"] = steps["load"] + steps["plan"]
    step("load again", lambda: load_lineage(reader))
    reports = [
        WindowReport(
            item.token, item.start_exclusive_micros, item.end_inclusive_micros, WindowOutcome.COMPLETE
        )
        for item in windows
    ]
    later = step("advance", lambda: advance(loaded, loaded.cycle + 1, reports, []))
    pruned = step("prune", lambda: prune(later, START))
    step("save", lambda: save_lineage(reader, pruned))
    for name, taken in steps.items():
        report.note(f"lineage: {name}", taken, "s", past=options.past)


def main() -> None:
    """Run both."""
    from benchmarks.measure.tables import open_session

    parser = arguments(__doc__ or "")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 10, 100, 1000], help="to compare")
    parser.add_argument("--rate", type=float, default=100.0, help="transactions a second")
    parser.add_argument("--seconds", type=float, default=100.0, help="of traffic that are read")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count")
    parser.add_argument("--modes", action="store_true", help="compare the partition modes only")
    parser.add_argument("--past", type=int, default=100_000, help="partitions of the lineage that ended")
    options = parser.parse_args()
    report = Report("partitions", options)
    if options.modes:
        compare_modes(options, report)
        return
    measure_lineage(options, report)
    with open_session(SparkSettings(), LakeSettings(str(options.work / "partitions"))) as spark:
        compare_reads(options, report, spark)


if __name__ == "__main__":
    main()
