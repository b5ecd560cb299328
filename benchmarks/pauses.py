"""Two processes on one pipeline, each of which is stopped at random moments, for longer than timeouts last.

Both run `cdc-platform sync --continuous` against a simulator that never stops. SIGSTOP stops one of
them with its Java, anywhere, and SIGCONT lets it continue where another has worked meanwhile. Neither may
end. After each pause, the sum of all balances must be right at every cut that can be read: none may mix the
two. At the end both are stopped properly, the pipeline catches up, every check runs, no record may be in the
log twice, and no money may be lost.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.kill import ACCOUNTS, EACH_OPENED_WITH, Target, check_lake, position
from benchmarks.measure.harness import Report, arguments, must_equal
from benchmarks.measure.processes import start
from cdc_platform.components.loading import load_settings
from cdc_platform.demo.live import balances_at_all_cuts
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import SimulatorSettings

ENDS_WITHIN_S: Final = 300


def check_cuts(pipeline: Pipeline) -> set[int]:
    """Make sure that all money is there at every readable cut of an open bank, and return their numbers."""
    totals = {of.cut.cut: of.total for of in balances_at_all_cuts(pipeline) if of.accounts}
    wrong = {cut: total for cut, total in totals.items() if total != ACCOUNTS * EACH_OPENED_WITH}
    must_equal({}, wrong, "cuts with another sum of balances")
    return set(totals)


def stop_at_random(
    processes: "Sequence[subprocess.Popen[bytes]]", target: Target, options: argparse.Namespace
) -> tuple[int, int]:
    """Stop one process or the other for a while, again and again; return how often, and the right cuts."""
    pipeline, right = open_pipeline(load_settings(target.write_definition())), set[int]()
    dice, pauses = random.Random(f"{options.seed}/pauses"), 0  # noqa: S311  no secret
    until_s = time.monotonic() + options.minutes * 60
    while time.monotonic() < until_s:
        time.sleep(dice.uniform(0, 10))
        process, seconds = dice.choice(processes), dice.uniform(0, options.longest_s)
        must_equal(None, process.poll(), "exit code of a run that continues")
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGCONT)
        pauses += 1
        print(f"  pause {pauses} of {seconds:.0f} s: {position(target.lake)}", flush=True)
        right |= check_cuts(pipeline)
    pipeline.source.close()
    return pauses, len(right)


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=60, help="how long both run")
    parser.add_argument("--longest-s", type=float, default=90, help="longest pause")
    parser.add_argument("--rate", type=float, default=20, help="transactions a second")
    options = parser.parse_args()
    report = Report("pauses", options)
    folder: Path = options.work / "pauses"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    simulated = SimulatorSettings(
        seed=options.seed, rate=options.rate, accounts=ACCOUNTS, partitions=6, partition_life_s=15.0
    )
    with Simulator(simulated) as simulator:
        target = Target(folder, simulator, copies=False)
        definition = target.write_definition()
        processes = [start(definition, "sync", "--continuous") for _ in range(2)]
        try:
            pauses, right = stop_at_random(processes, target, options)
            cut = newest_cut(target.lake)
            must_equal(True, cut is not None, "whether anything was published")
            for process in processes:
                process.send_signal(signal.SIGTERM)
            codes = [process.wait(ENDS_WITHIN_S) for process in processes]
            must_equal([0, 0], codes, "exit codes of runs that were asked to end")
        finally:
            for process in processes:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        check_lake(target)
    report.note("pauses of one of two processes, every check passed", pauses, "pauses", right_cuts=right)
    report.note("changes in the log, each once", target.changes, "changes", cuts=cut.cut if cut else 0)


if __name__ == "__main__":
    main()
