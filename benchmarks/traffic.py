"""An hour of simulated traffic, in cycles without pauses: churn, all faults, reconciliation at every cut."""

import shutil
import time
from argparse import Namespace
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.measure.harness import Report, arguments
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.control import load_lineage
from cdc_platform.lake.state.schema_history import list_schema_events
from cdc_platform.simulator.wire.simulator_settings import Dialect, PartitionMode
from cdc_platform.spark.launch.spark_settings import SparkSettings
from cdc_platform_tests.support.workloads.traffic import SECOND, Traffic, check_end


def run(options: Namespace, traffic: Traffic, spark: SparkSession, report: Report) -> None:
    """Run the traffic to its end, and report every cut."""
    with traffic.open() as (simulator, pipeline):
        begin_micros = traffic.now_micros
        begin, end = time.perf_counter(), begin_micros + int(options.minutes * 60 * SECOND)
        # A cut lies a microsecond before the clock that its cycle saw.
        while (traffic.checked_micros or 0) < end - 1:
            traffic.cycle(simulator, pipeline, spark, options.cycle_s)
            passed_s = (traffic.now_micros - begin_micros) / SECOND
            lag_s = (traffic.now_micros - (traffic.checked_micros or begin_micros)) / SECOND
            print(
                f"  {passed_s:6.0f} s  cut {traffic.cuts:<4} lag {lag_s:5.1f} s  "
                f"{simulator.history.tree.live_count} partitions  "
                + "  ".join(f"{step} {taken:.1f} s" for step, taken in traffic.seconds.items()),
                flush=True,
            )
        check_end(pipeline, spark)
        wall_s = time.perf_counter() - begin
        lineage = load_lineage(pipeline.lake)
        partitions = lineage.partitions.values() if lineage is not None else ()
        report.note("cuts checked", traffic.cuts, "cuts", transactions=traffic.transactions)
        changes = [event for event in list_schema_events(pipeline.lake) if event.since_micros is not None]
        report.note("schema changes followed", len(changes), "changes")
        report.note(
            "partitions that ended",
            sum(partition.is_finished for partition in partitions),
            "",
            known=len(partitions),
        )
        for fault, times in simulator.database.faults.incidents.items():
            report.note(f"fault {fault.value}", times, "queries")
        report.note("cycles tried again", traffic.retries, "cycles")
        report.note("simulated time / wall time", passed_s / wall_s, "x", wall_s=round(wall_s))


def main() -> None:
    """Run the traffic; it stops at the first cut that is not right."""
    from benchmarks.measure.tables import open_session

    parser = arguments(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=60.0, help="simulated minutes")
    parser.add_argument("--partitions", type=int, default=200, help="about how many live at a time")
    parser.add_argument("--rate", type=float, default=100.0, help="transactions per simulated second")
    parser.add_argument("--cycle-s", type=float, default=20.0, help="simulated seconds between two cycles")
    parser.add_argument("--dialect", type=Dialect, default=Dialect.GOOGLESQL, choices=list(Dialect))
    parser.add_argument("--partition-mode", type=PartitionMode, default=PartitionMode.IMMUTABLE_KEY_RANGE)
    parser.add_argument("--placement", action="append", default=[], help="besides the default one")
    parser.add_argument(
        "--schema-changes-every", type=float, help="simulated seconds from one to the next; none without it"
    )
    options = parser.parse_args()
    report = Report("traffic", options)
    folder: Path = options.work / "traffic"
    shutil.rmtree(folder, ignore_errors=True)
    lake = LakeSettings(str(folder))
    traffic = Traffic(options.seed, options.partitions, lake, options.dialect, options.rate)
    traffic.schema_change_every_s = options.schema_changes_every
    traffic.partition_mode, traffic.placements = options.partition_mode, tuple(options.placement)
    with open_session(SparkSettings(driver_memory="3g"), lake) as spark:
        run(options, traffic, spark, report)


if __name__ == "__main__":
    main()
