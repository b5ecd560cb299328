"""Commit-to-cut latency of `cdc-platform sync --continuous` while the bank is busy.

Marker rows are committed through the stock client; each one counts until the `cuts` table, read through
pyiceberg, has a cut at or after its commit timestamp.
"""

import random
import statistics
import sys
import time
from datetime import UTC, datetime
from subprocess import Popen
from typing import Any

from benchmarks.bank import Bench, open_bench, write_definition
from benchmarks.harness import Report, arguments, must_equal, percentile
from cdc_platform.demo.bank import open_database
from cdc_platform.demo.ledger import TRANSFER_COLUMNS, TRANSFERS
from cdc_platform.lake.cuts import newest_cut
from cdc_platform.lake.lake import Lake
from cdc_platform.model.names import lake_table_name
from cdc_platform.model.timestamps import from_datetime

POLL_S = 0.02
FIRST_CUT_WITHIN_S = 240.0
CUT_WITHIN_S = 240.0


def start_sync(bench: Bench, *options: str) -> "Popen[bytes]":
    """Start the command line in a process group of its own."""
    command = [sys.executable, "-m", "cdc_platform.cli", "sync", str(write_definition(bench)), *options]
    return Popen(command, start_new_session=True)


def start_writer(bench: Bench, rate: float, seed: int) -> "Popen[bytes]":
    """Start the bank's writer as a process of its own."""
    command = [sys.executable, "-m", "cdc_platform.demo.bank", "--host", bench.bank.host]
    return Popen([*command, "--rate", str(rate), "--seed", str(seed)])


def catalog_written_ns(lake: Lake) -> int:
    """Return when the file of the lake's catalog was written last."""
    file = lake.settings.catalog_file
    return file.stat().st_mtime_ns if file is not None and file.exists() else 0


def wait_for_position(lake: Lake, micros: int, within_s: float) -> None:
    """Return when a cut at or after a moment is published.

    Raises:
        TimeoutError: none was in time.
    """
    give_up_at = time.monotonic() + within_s
    seen_ns = None
    while time.monotonic() < give_up_at:
        written_ns = catalog_written_ns(lake)
        # Reading the lake for each look would take a core from what is measured.
        if written_ns != seen_ns or seen_ns is None:
            cut = newest_cut(lake)
            if cut is not None and cut.position_micros >= micros:
                return
            seen_ns = written_ns
        time.sleep(POLL_S)
    raise TimeoutError(f"no cut at or after {micros} within {within_s} s")


def commit_marker(database: Any, number: int) -> int:
    """Commit one row that moves no money and return its commit timestamp."""
    now = datetime.now(UTC).replace(microsecond=0)
    with database.batch() as batch:
        batch.insert(TRANSFERS, TRANSFER_COLUMNS, [(f"marker-{number}", 0, 0, 0, 0, now, "marker")])
    return from_datetime(batch.committed)


def measure(lake: Lake, database: Any, options: Any) -> list[float]:
    """Return the seconds from commit to cut of each marker, at random moments of the ticks."""
    chance = random.Random(options.seed)  # noqa: S311  a benchmark's input, not a secret
    wait_for_position(lake, commit_marker(database, 0), FIRST_CUT_WITHIN_S)
    time.sleep(options.warm_up_s)
    seconds = []
    for number in range(1, options.markers + 1):
        time.sleep(chance.uniform(0, 1.5))
        micros = commit_marker(database, number)
        begin = time.perf_counter()
        wait_for_position(lake, micros, CUT_WITHIN_S)
        seconds.append(time.perf_counter() - begin)
        print(f"  marker {number}: {seconds[-1]:.2f} s", flush=True)
    return seconds


def count_markers(lake: Lake) -> int:
    """Return how many markers a reader of the table sees."""
    table = lake.catalog.load_table(f"{lake.pipeline}.{lake_table_name(TRANSFERS)}")
    return len(table.scan(row_filter="note = 'marker'", selected_fields=("transfer_id",)).to_arrow())


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--markers", type=int, default=60, help="rows whose latency is measured")
    parser.add_argument("--rate", type=float, default=200, help="transfers a second meanwhile; 0 for none")
    parser.add_argument("--token-life-s", type=int, default=20, help="least life of a partition")
    parser.add_argument("--warm-up-s", type=float, default=30, help="seconds of ticks before the first")
    options = parser.parse_args()
    report = Report("latency", options)
    with (
        open_bench(options.work / "latency", options.token_life_s) as bench,
        open_database(bench.bank) as database,
    ):
        lake = Lake(bench.pipeline.lake, bench.pipeline.name)
        processes = [start_sync(bench, "--continuous")]
        if options.rate:
            processes.append(start_writer(bench, options.rate, options.seed))
        try:
            seconds = measure(lake, database, options)
        finally:
            for process in processes:
                process.terminate()
                process.wait(120)
        must_equal(options.markers + 1, count_markers(lake), "markers in the table")
    report.note("commit to cut, p50", statistics.median(seconds), "s", markers=len(seconds))
    report.note("commit to cut, p95", percentile(seconds, 0.95), "s", longest=round(max(seconds), 2))


if __name__ == "__main__":
    main()
