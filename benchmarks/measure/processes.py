"""Commands of a pipeline in separate process groups, and their end at random moments."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure.harness import must_equal


def start(definition: Path, command: str, *options: str) -> "subprocess.Popen[bytes]":
    """Start a command of a pipeline in a separate process group."""
    return subprocess.Popen(
        [sys.executable, "-m", "cdc_platform.cli", command, str(definition), *options], start_new_session=True
    )


def kill_sync(definition: Path, within_s: float, chance: random.Random) -> None:
    """Start an endless sync, and kill its whole process group at a random moment."""
    process = start(definition, "sync", "--continuous")
    time.sleep(chance.uniform(0, within_s))
    must_equal(None, process.poll(), "exit code of a run before it is killed")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def catch_up(definition: Path) -> None:
    """Make sure that a pipeline gets to the present."""
    must_equal(0, start(definition, "sync").wait(), "exit code of `cdc-platform sync`")


def check(definition: Path) -> None:
    """Make sure that all checks of a pipeline pass."""
    must_equal(0, start(definition, "check").wait(), "exit code of `cdc-platform check`")
