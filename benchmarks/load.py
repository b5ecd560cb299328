"""Load: many tables, partitions or columns, long rows, one huge transaction, a large table; what each costs.

Each case runs whole cycles to published cuts, compares all rows with what was sent, and reports the first
cycle, the tenth, and the peak memory of this process and of Spark. Processor seconds are those of both; wall
seconds depend on what else the machine does.
"""

import shutil
from collections.abc import Callable, Mapping
from typing import Final

from benchmarks.inputs.load_cases import run_columns, run_partitions, run_rows, run_size, run_tables
from benchmarks.inputs.load_feeds import KINDS
from benchmarks.inputs.load_transaction import run_transaction
from benchmarks.measure.harness import Report, arguments
from benchmarks.measure.load_bench import Bench
from benchmarks.measure.tables import open_session
from benchmarks.measure.usage import Meter
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.launch.spark_settings import SparkSettings

CASES: Final[Mapping[str, Callable[[Bench], None]]] = {
    "tables": run_tables,
    "partitions": run_partitions,
    "columns": run_columns,
    "transaction": run_transaction,
    "rows": run_rows,
    "size": run_size,
}


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", choices=CASES, default=None, help="one case; all of them otherwise")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of all sizes")
    parser.add_argument("--sources", nargs="+", choices=KINDS, default=list(KINDS), help="kinds of source")
    options = parser.parse_args()
    report = Report("load", options)
    folder = options.work / "load"
    for name in [options.only] if options.only else CASES:
        shutil.rmtree(folder, ignore_errors=True)
        lake = LakeSettings(str(folder / "lake"))
        with open_session(SparkSettings(), lake) as spark:
            bench = Bench(options, report, spark, lake, Meter(spark, folder / "lake"))
            with bench.meter.watch_memory():
                CASES[name](bench)
            for process, peak in bench.meter.peak_bytes.items():
                report.note(f"{name}: peak memory, {process}", peak / 2**20, "MiB")


if __name__ == "__main__":
    main()
