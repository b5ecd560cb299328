"""Kills the whole process group of a running sync at random moments, then asks for the proof.

Transfers are committed all the time and partitions live for seconds. After the last kill the pipeline
catches up, every check runs, and no record may be in the log twice.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.bank import Bench, open_bench, write_definition
from benchmarks.harness import Report, arguments, must_equal
from benchmarks.latency import start_sync, start_writer
from cdc_platform.demo.bank import open_database, sum_of_balances
from cdc_platform.lake.cuts import newest_cut
from cdc_platform.lake.lake import LOG, Lake
from cdc_platform.model.names import lake_table_name


def kill_at_random(bench: Bench, kills: int, within_s: float, chance: random.Random) -> Counter[str]:
    """Start the pipeline and kill its whole process group, again and again; return how each run ended."""
    ends: Counter[str] = Counter()
    for number in range(1, kills + 1):
        process = start_sync(bench, "--continuous")
        time.sleep(chance.uniform(0, within_s))
        was_running = process.poll() is None
        ends["killed" if was_running else f"ended with {process.returncode}"] += 1
        if was_running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
        print(f"  kill {number}/{kills}: {position(bench)}", flush=True)
    return ends


def position(bench: Bench) -> str:
    """Return where the lake stands after a kill, as far as readers see."""
    cut = newest_cut(Lake(bench.pipeline.lake, bench.pipeline.name))
    return f"cut {cut.cut}, tick {cut.tick}" if cut is not None else "no cut yet"


def prove(bench: Bench, lake: Lake, database: Any) -> int:
    """Make sure that nothing is lost, twice or wrong; return the number of changes in the log."""
    for command in ("sync", "check"):
        ended = subprocess.run(
            [sys.executable, "-m", "cdc_platform.cli", command, str(write_definition(bench))], check=False
        )
        must_equal(0, ended.returncode, f"exit code of `cdc-platform {command}`")
    fields = ("table_name", "record_id", "mod_ordinal")
    log = lake.system_table(LOG).scan(selected_fields=fields).to_arrow()
    must_equal(len(log), len(log.group_by(list(fields)).aggregate([])), "distinct changes of the log")
    table = lake.catalog.load_table(f"{lake.pipeline}.{lake_table_name('accounts')}")
    balances = table.scan(selected_fields=("balance",)).to_arrow()["balance"].to_pylist()
    must_equal(sum_of_balances(database), sum(balances), "sum of balances")
    return len(log)


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--kills", type=int, default=100, help="how often the process group is killed")
    parser.add_argument("--within-s", type=float, default=25, help="longest life of a run")
    parser.add_argument("--rate", type=float, default=50, help="transfers a second")
    options = parser.parse_args()
    report = Report("kill", options)
    chance = random.Random(options.seed)  # noqa: S311  a benchmark's input, not a secret
    with open_bench(options.work / "kill", token_life_s=5) as bench, open_database(bench.bank) as database:
        lake = Lake(bench.pipeline.lake, bench.pipeline.name)
        writer = start_writer(bench, options.rate, options.seed)
        try:
            ends = kill_at_random(bench, options.kills, options.within_s, chance)
        finally:
            writer.terminate()
            writer.wait(30)
        changes = prove(bench, lake, database)
    report.note("kills survived, every check passed", ends["killed"], "kills", **ends)
    report.note("changes in the log, each once", changes, "changes")


if __name__ == "__main__":
    main()
