"""A clock that jumps: cycles of a pipeline on a machine whose clock goes ahead and back by hours.

A small library shifts the time of day of this process and of its Java. By turns the clock goes ahead for
good, goes back for seconds and is then right again, and is left alone, each at a random moment of a cycle.
Commits wait while the clock is behind the newest one. At the end the clock is right: the pipeline catches up,
the tables must equal what the source has, and every check must pass.
"""

import os
import random
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.measure.harness import Report, arguments, must_equal
from benchmarks.storage import Storage, run
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform_tests.support.workloads.workload import WORKLOADS

LIBRARY: Final = Path(__file__).parent / "inputs" / "wrong_clock.c"
OFFSET_FILE: Final = "CLOCK_OFFSET"
"""Names the file with the offset, for the library."""
HOUR_S: Final = 3600
WITHIN_S: Final = 3.0
"""A jump comes so long after the begin of its cycle at most."""
BEHIND_S: Final = 20.0
"""The clock is wrong for so long at most."""


@dataclass
class JumpingClock:
    """The clock of this process and of its children.

    Args:
        file: has its offset.
        dice: of moments and hours.
    """

    file: Path
    dice: random.Random
    right_s: float = 0.0
    """The offset of the right clock, which only grows."""
    counts: Counter[str] = field(default_factory=Counter)
    timers: list[threading.Timer] = field(default_factory=list)

    def set_offset(self, offset_s: float) -> None:
        """Let the clock differ so much from the machine's."""
        with self.file.open("r+b", buffering=0) as opened:
            opened.write(struct.pack("=q", round(offset_s)))

    def jump(self, cycle: int) -> None:
        """Let it go ahead in a cycle, or back for a while, or neither, by turns."""
        hours_s = self.dice.uniform(1, 12) * HOUR_S
        if cycle % 3 == 1:
            self.counts["clock ahead"] += 1
            self.right_s += hours_s
            self._later(self.dice.uniform(0, WITHIN_S))
        elif cycle % 3 == 2:
            self.counts["clock back"] += 1
            back_at_s = self.dice.uniform(0, WITHIN_S)
            self._later(back_at_s, behind_s=hours_s)
            self._later(back_at_s + self.dice.uniform(2, BEHIND_S))

    def be_right(self) -> None:
        """Let all jumps be over."""
        for timer in self.timers:
            timer.cancel()
        self.set_offset(self.right_s)

    def _later(self, seconds: float, behind_s: float = 0.0) -> None:
        # What is right may change until then: a short cycle ends before the clock that it set back is right.
        timer = threading.Timer(seconds, lambda: self.set_offset(self.right_s - behind_s))
        timer.daemon = True
        timer.start()
        self.timers.append(timer)


def start_again(folder: Path) -> None:
    """Run this command again with the library, whose offset is 0."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    library, file = folder / "wrong_clock.so", folder / "offset"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, LIBRARY], check=True)
    file.write_bytes(bytes(8))
    environment = os.environ | {"LD_PRELOAD": str(library), OFFSET_FILE: str(file)}
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.clocks", *sys.argv[1:]], environment)  # noqa: S606  it replaces itself


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--workload", choices=list(WORKLOADS), default="spanner", help="what is read")
    parser.add_argument("--minutes", type=float, default=60, help="how long the clock jumps")
    parser.add_argument("--changes", type=int, default=50, help="changes for a cycle, about")
    options = parser.parse_args()
    options.storage = "clock"
    folder: Path = options.work / "clocks" / options.workload
    if OFFSET_FILE not in os.environ:
        start_again(folder)
    report = Report("clocks", options)
    clock = JumpingClock(Path(os.environ[OFFSET_FILE]), random.Random(options.seed))  # noqa: S311  no secret
    before_s = time.time()
    clock.set_offset(HOUR_S)
    must_equal(1, round((time.time() - before_s) / HOUR_S), "hours that the clock has gone ahead")
    clock.set_offset(0)
    storage = Storage(
        LakeSettings(str(folder / "lake")), lambda: None, clock.be_right, lambda: clock.counts, clock.jump
    )
    run(storage, folder, options, report)


if __name__ == "__main__":
    main()
