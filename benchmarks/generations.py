"""Catching up with short-lived partitions: the time of reading generations together and one by one.

In the history of a simulator all partitions split, merge and move every few seconds, as after an outage of
the pipeline. It is read into two lakes: with children read together with their parents, as cycles do, and
generation by generation, with a commit for each. Both must have the same records.

`--restart` measures the whole of it instead: a process of `cdc-platform sync` that starts so far behind, from
its start to the published cut.
"""

import itertools
import json
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import cast

import yaml
from pyspark.sql import SparkSession

from benchmarks.measure.harness import Report, arguments, interleaved, must_equal, timed
from benchmarks.partitions import open_stream
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.stream.lineage import live, watermark_micros
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.reading.read import read_generations, read_windows
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.spark.launch.spark_settings import SparkSettings

TOGETHER = "generations together"
ONE_BY_ONE = "one generation a commit"
Step = Callable[[Pipeline, SparkSession, int], object]


def read_together(pipeline: Pipeline, spark: SparkSession, _end_micros: int) -> None:
    """Read as a cycle does."""
    read_generations(pipeline, spark)


def read_generation_by_generation(pipeline: Pipeline, spark: SparkSession, end_micros: int) -> None:
    """Read only the live partitions, without their children."""
    keys = [partition.key for partition in live(trace_lineage(pipeline))]
    read_windows(pipeline, spark, keys, end_limit_micros=end_micros)


def catch_up(pipeline: Pipeline, spark: SparkSession, step: Step, end_micros: int) -> None:
    """Read until the watermark has reached a moment."""
    while (watermark_micros(trace_lineage(pipeline)) or 0) < end_micros:
        step(pipeline, spark, end_micros)


def run(options: Namespace, report: Report, spark: SparkSession, source: SpannerSettings) -> None:
    """Read the same history in both ways, alternately, each time into its own lake."""
    numbers = itertools.count(1)
    commits: dict[str, int] = {}
    records: set[int] = set()

    def time_reading(name: str, step: Step) -> float:
        lake = LakeSettings(str(options.work / "generations"))
        local_s = 10 * options.seconds if options.local else PipelineSettings.local_read_s
        name_of_lake = f"bank_{next(numbers)}"
        pipeline = open_pipeline(PipelineSettings(name_of_lake, source, lake, local_read_s=local_s))
        end_micros = trace_lineage(pipeline).partitions[""].start_micros + int(options.seconds * 1e6)
        taken = timed(lambda: catch_up(pipeline, spark, step, end_micros))
        raw = pipeline.lake.system_table(RAW)
        commits[name] = read_mark(raw).cycle
        until = f"kind = '{RecordKind.DATA_CHANGE.value}' and record_timestamp <= {end_micros}"
        identities = raw.scan(until, selected_fields=("server_transaction_id", "record_sequence")).to_arrow()
        records.add(len(identities))
        pipeline.source.close()
        return taken

    steps: dict[str, Step] = {TOGETHER: read_together, ONE_BY_ONE: read_generation_by_generation}
    seconds = interleaved(
        options.rounds, {name: partial(time_reading, name, step) for name, step in steps.items()}
    )
    must_equal(1, len(records), "numbers of records, by all ways of reading")
    for name, count in commits.items():
        report.note(f"{name}: commits", count, "commits", records=max(records))
    report.compare(seconds, TOGETHER, max(records), "records/s")


def measure_restart(options: Namespace, report: Report) -> None:
    """Run one cycle in a separate process, and report how long it took and how far its cut is behind."""
    folder = options.work / "generations"
    folder.mkdir()
    source = json.loads((options.work / f"partitions-{options.partitions}.json").read_text(encoding="utf-8"))
    attributes = {"name": "bank", "source": source, "lake": {"path": "lake"}}
    defs = folder / "defs.yaml"
    document = {"type": "cdc_platform.components.spanner.SpannerPipeline", "attributes": attributes}
    defs.write_text(yaml.safe_dump(document), encoding="utf-8")
    command = [sys.executable, "-m", "cdc_platform.cli", "sync", str(defs), "--cycles", "1"]
    started_s = time.perf_counter()
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    report.note("restart to published cut", time.perf_counter() - started_s, "s", line=output.strip()[-300:])


def main() -> None:
    """Run the benchmark."""
    from benchmarks.measure.tables import open_session

    parser = arguments(__doc__ or "")
    parser.add_argument("--partitions", type=int, default=6, help="that live at a time")
    parser.add_argument("--life-s", type=float, default=5.0, help="minimum life of a partition")
    parser.add_argument("--rate", type=float, default=20.0, help="transactions a second")
    parser.add_argument("--seconds", type=float, default=480.0, help="how far the pipeline is behind")
    parser.add_argument("--rounds", type=int, default=1, help="rounds that count")
    parser.add_argument("--local", action="store_true", help="read in this process, not in tasks of Spark")
    parser.add_argument("--restart", action="store_true", help="measure a whole restart instead")
    options = parser.parse_args()
    report = Report("generations", options)
    folder = options.work / "generations"
    shutil.rmtree(folder, ignore_errors=True)
    with open_stream(options, options.partitions, options.life_s) as stream, ExitStack() as stack:
        if options.restart:
            measure_restart(options, report)
            return
        # A read in this process does without a session.
        session: AbstractContextManager[SparkSession] = nullcontext(cast("SparkSession", None))
        opened = session if options.local else open_session(SparkSettings(), LakeSettings(str(folder)))
        run(options, report, stack.enter_context(opened), stream.source.settings)


if __name__ == "__main__":
    main()
