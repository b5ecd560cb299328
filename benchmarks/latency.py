"""Commit-to-cut latency while a bank is busy, of `cdc-platform sync --continuous` or of Dagster's sensors.

The `cuts` table is read through pyiceberg whenever the catalog has changed, and the moment is kept at which
each cut was there. A transaction counts from its commit until the first cut at or after it was there; the
bank books all the time, so every millisecond between the first and the last cut stands for one. With `--ui`
the platform runs as `cdc-platform demo` starts it: Dagster with sensor and UI, and a Spark Connect server.
At the end the sum of all balances must be right at every cut.
"""

import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from subprocess import Popen
from typing import Any

from benchmarks.measure.harness import Report, arguments, must_equal, percentile
from cdc_platform.components.loading import load_settings
from cdc_platform.demo.bank import open_bank
from cdc_platform.demo.home import DemoHome, open_home, prepare_home
from cdc_platform.demo.live import balances_at_all_cuts
from cdc_platform.demo.processes import Children
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline

CLI = (sys.executable, "-m", "cdc_platform.cli")
POLL_S = 0.02
FIRST_CUT_WITHIN_S = 240.0
STEP_MICROS = 1000

Seen = tuple[int, int]
"""A cut's position, and when it was there, both in microseconds since 1970."""


@contextmanager
def sync_running(home: DemoHome, options: Any) -> Iterator[None]:
    """Let the command line follow a busy bank."""
    with ExitStack() as stack:
        stack.enter_context(open_home(home.folder))
        children = stack.enter_context(Children(home.folder, home.logs))
        bank = open_bank(home, children, options.rate, options.partition_life_s)
        prepare_home(home, bank)
        children.start("sync", [*CLI, "sync", str(home.defs), "--continuous"])
        yield


@contextmanager
def demo_running(home: DemoHome, options: Any) -> Iterator[None]:
    """Let Dagster's sensor follow a busy bank."""
    shape = ["--rate", str(options.rate), "--partition-life", str(options.partition_life_s)]
    command = [*CLI, "demo", "--home", str(home.folder), *shape]
    demo = Popen(command, start_new_session=True)
    try:
        yield
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(120)


def wait_for_lake(home: DemoHome) -> Pipeline:
    """Return the pipeline once it has published a cut.

    Raises:
        TimeoutError: it has not in time.
    """
    give_up_at = time.monotonic() + FIRST_CUT_WITHIN_S
    while time.monotonic() < give_up_at:
        if (home.lake / "catalog.db").exists():
            pipeline = open_pipeline(load_settings(home.defs))
            if newest_cut(pipeline.lake) is not None:
                return pipeline
        time.sleep(1)
    raise TimeoutError(f"no cut within {FIRST_CUT_WITHIN_S} s")


def watch_cuts(lake: Lake, seconds: float) -> list[Seen]:
    """Return the cuts that come up within some seconds, each with when it was there."""
    seen: list[Seen] = []
    catalog = Path(lake.settings.path) / "catalog.db"
    written_ns, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        # Reading the lake for each look would take a core from what is measured.
        if (now_ns := catalog.stat().st_mtime_ns) != written_ns:
            written_ns = now_ns
            cut = newest_cut(lake)
            if cut is not None and (not seen or cut.position_micros > seen[-1][0]):
                seen.append((cut.position_micros, clock_micros()))
        time.sleep(POLL_S)
    return seen


def latencies_s(seen: Sequence[Seen]) -> list[float]:
    """Return the seconds from commit to cut of a transaction of every millisecond."""
    return [
        (there - commit) / 1e6
        for (before, _), (position, there) in pairwise(seen)
        for commit in range(before + 1, position + 1, STEP_MICROS)
    ]


def require_sums(pipeline: Pipeline) -> int:
    """Make sure that the sum of all balances is the same at every cut, and return how many there are."""
    totals = [balances.total for balances in balances_at_all_cuts(pipeline) if balances.accounts]
    must_equal([max(totals)] * len(totals), totals, "sums of balances at the cuts")
    return len(totals)


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--ui", action="store_true", help="of Dagster's sensor, instead of `sync`")
    parser.add_argument("--rate", type=float, default=200, help="transfers a second, of about three changes")
    parser.add_argument("--partition-life-s", type=int, default=20, help="minimum life of a partition")
    parser.add_argument("--warm-up-s", type=float, default=120, help="seconds after the first cut, left out")
    parser.add_argument("--seconds", type=float, default=120, help="seconds that are measured")
    options = parser.parse_args()
    report = Report("latency", options)
    home = DemoHome(options.work / "latency")
    shutil.rmtree(home.folder, ignore_errors=True)
    running = demo_running if options.ui else sync_running
    with running(home, options):
        pipeline = wait_for_lake(home)
        time.sleep(options.warm_up_s)
        seen = watch_cuts(pipeline.lake, options.seconds)
        taken = latencies_s(seen)
    right = require_sums(pipeline)
    between = [(later - earlier) / 1e6 for (_, earlier), (_, later) in pairwise(seen)]
    report.note("commit to cut, p50", percentile(taken, 0.5), "s", cuts=len(seen), right_sums=right)
    report.note("commit to cut, p95", percentile(taken, 0.95), "s", longest=round(max(taken), 2))
    report.note("from cut to cut, p50", percentile(between, 0.5), "s")


if __name__ == "__main__":
    main()
