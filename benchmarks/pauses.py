"""Two processes on one pipeline, each of which is stopped at random moments, for longer than timeouts last.

Both run `cdc-platform sync --continuous` against a simulator that never stops. SIGSTOP stops one of
them with its Java, anywhere, and SIGCONT lets it continue where another has worked meanwhile. Neither may
end. After each pause, at every cut that can be read, the rows of both tables must be those of the log up to
the cycle of the cut, and the sum of all balances must be right: no cut may mix the two. At the end both are
stopped properly, the pipeline catches up, every check runs, no record may be in the log twice, and no money
may be lost.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.kill import ACCOUNTS, EACH_OPENED_WITH, Target, check_lake, position
from benchmarks.measure.harness import Report, arguments, must_equal
from benchmarks.measure.processes import start
from cdc_platform.components.loading import load_settings
from cdc_platform.lake.commits.filters import between
from cdc_platform.lake.state.cuts import Cut, list_cuts, newest_cut
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import SimulatorSettings

ENDS_WITHIN_S: Final = 300
VALUES: Final = {"accounts": ("account_id", "balance"), "transfers": ("transfer_id", "amount")}
"""Key and the value that is compared, of each table."""


@dataclass
class CutCheck:
    """Compares every cut with the log: a table of another cycle than the cut's would differ."""

    pipeline: Pipeline
    cycle: int = 0
    cuts: int = 0
    newest: int = 0
    expected: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in VALUES})

    def check(self) -> None:
        """Check the cuts that were published since the last call and can still be read."""
        for cut in list_cuts(self.pipeline.lake):
            if cut.cut > self.newest:
                self._replay(cut.cycle)
                self._compare(cut)
                self.newest = cut.cut

    def _replay(self, cycle: int) -> None:
        """Apply the log up to a cycle to the expected values."""
        fields = ("ordinal", "table_name", "change_kind", "keys", "new_values")
        span = between("cycle", self.cycle + 1, cycle)
        log = self.pipeline.lake.system_table(LOG).scan(row_filter=span, selected_fields=fields).to_arrow()
        for row in log.sort_by("ordinal").to_pylist():
            (key, value), rows = VALUES[row["table_name"]], self.expected[row["table_name"]]
            changed = str(json.loads(row["keys"])[key])
            if row["change_kind"] == ChangeKind.DELETE:
                del rows[changed]
            else:
                rows[changed] = int(json.loads(row["new_values"]).get(value, rows.get(changed)))
        self.cycle = cycle

    def _compare(self, cut: Cut) -> None:
        for name, fields in VALUES.items():
            table = self.pipeline.lake.table(name)
            snapshot_id = cut.tables.get(name)
            if table is None or snapshot_id is None or table.metadata.snapshot_by_id(snapshot_id) is None:
                return
            rows = table.scan(snapshot_id=snapshot_id, selected_fields=fields).to_arrow()
            keys, values = (rows[field].to_pylist() for field in fields)
            must_equal(len(keys), len(set(keys)), f"distinct rows of {name} at cut {cut.cut}")
            actual = dict(zip(map(str, keys), values, strict=True))
            must_equal(self.expected[name], actual, f"rows of {name} at cut {cut.cut}, cycle {cut.cycle}")
        opened = self.expected["accounts"]
        must_equal(ACCOUNTS * EACH_OPENED_WITH if opened else 0, sum(opened.values()), "sum of balances")
        self.cuts += 1


def stop_at_random(
    processes: "Sequence[subprocess.Popen[bytes]]", target: Target, options: argparse.Namespace
) -> tuple[int, int]:
    """Stop one process or the other for a while, again and again; return how often, and the right cuts."""
    check = CutCheck(open_pipeline(load_settings(target.write_definition())))
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
        check.check()
    check.pipeline.source.close()
    must_equal(True, check.cuts > 0, "whether any cut was compared")
    return pauses, check.cuts


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
