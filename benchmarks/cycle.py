"""The fixed cost of a warm cycle: two tables, a thousand changes, from plan to published cut."""

import random
import statistics
import time
from collections import defaultdict
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.inputs.bank import CHANGES_PER_TRANSFER, book_transfers, open_bench
from benchmarks.measure.harness import Report, arguments, must_equal, percentile
from benchmarks.measure.tables import open_session
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform_tests.servers.bank import open_database, sum_of_balances

NO_CHURN_S = 3600
"""Life of partitions: one that ends during a cycle would leave that cycle less to do."""


def measure_cycles(
    pipeline: Pipeline, spark: SparkSession, database: Any, options: Any
) -> dict[str, list[float]]:
    """Return the seconds of each cycle, whole and by step; the first ones warm the session up."""
    dice = random.Random(options.seed)  # noqa: S311  a benchmark's input, not a secret
    seconds: dict[str, list[float]] = defaultdict(list)
    for number in range(1, options.warm_up + options.cycles + 1):
        book_transfers(database, options.changes // CHANGES_PER_TRANSFER, dice)
        begin = time.perf_counter()
        outcome = run_cycle(pipeline, spark)
        whole = time.perf_counter() - begin
        print(f"  cycle {number}: {whole:.2f} s, {outcome.order.changes} changes", flush=True)
        if number > options.warm_up:
            seconds["whole cycle"].append(whole)
            for step, taken in outcome.seconds.items():
                seconds[step].append(taken)
    catch_up(pipeline, spark)
    must_equal(
        sum_of_balances(database),
        spark.sql(f"SELECT sum(balance) FROM lake.{pipeline.name}.accounts").collect()[0][0],
        "sum of balances",
    )
    return seconds


def catch_up(pipeline: Pipeline, spark: SparkSession) -> None:
    """Run cycles until a cut holds all that is committed now."""
    clock_micros = pipeline.source.clock_micros()
    while (cut := run_cycle(pipeline, spark).cut) is None or cut.position_micros < clock_micros - 1:
        pass


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--changes", type=int, default=1000, help="changes before each cycle")
    parser.add_argument("--cycles", type=int, default=30, help="cycles that count")
    parser.add_argument("--warm-up", type=int, default=5, help="cycles before them")
    options = parser.parse_args()
    report = Report("cycle", options)
    with (
        open_bench(options.work / "cycle", partition_life_s=NO_CHURN_S) as bench,
        open_database(bench.bank) as database,
        open_session(bench.pipeline.spark, bench.pipeline.lake) as spark,
    ):
        pipeline = open_pipeline(bench.pipeline)
        catch_up(pipeline, spark)
        seconds = measure_cycles(pipeline, spark, database, options)
    for step, taken in seconds.items():
        report.note(step, statistics.median(taken), "s (median)", p95=round(percentile(taken, 0.95), 3))


if __name__ == "__main__":
    main()
