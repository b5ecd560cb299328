"""What Spark's launcher says: reported while it starts, collected for errors, and handed on afterwards."""

import signal
import subprocess
import sys

from cdc_platform.resources import _kept_interrupts

SCRIPT = """
import os, sys, time
from cdc_platform.resources import SPARK_IS_QUIET, _launcher_output

def report(line):
    print(f"reported {line}", file=sys.stderr)

with _launcher_output(report) as lines:
    launcher = os.dup(2)  # as the JVM gets it
    os.write(launcher, b"downloading one.jar\\n")
    while not lines:
        time.sleep(0.01)
    time.sleep(0.2)
    print("collected", len(lines), file=sys.stderr)
for line in (b"handed on", b"kept quiet"):
    os.write(launcher, line + b"\\n")
    time.sleep(0.2)
    SPARK_IS_QUIET.set()
"""


def test_what_the_launcher_says_is_reported_once() -> None:
    """A report reaches the terminal at once, and is not taken for something that the launcher said."""
    answer = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert answer.stderr.splitlines() == ["reported downloading one.jar", "collected 1", "handed on"]


def test_a_new_session_does_not_take_the_interrupts() -> None:
    """Ctrl-C means what it meant before Spark's session made it cancel all jobs."""
    before = signal.getsignal(signal.SIGINT)
    with _kept_interrupts():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert before == signal.getsignal(signal.SIGINT)
