"""Output of Spark's launcher: reported while it starts, collected for errors, and passed on afterwards."""

import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from cdc_platform import resources
from cdc_platform.components.loading import load_settings
from cdc_platform.resources import _kept_interrupts, run_resource
from cdc_platform_tests.yaml_files import write_defs

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
os.write(launcher, b"handed on\\n")
input()  # the test has read it
SPARK_IS_QUIET.set()
os.write(launcher, b"kept quiet\\n")
time.sleep(0.2)
"""


def test_what_the_launcher_says_is_reported_once() -> None:
    """A report reaches the terminal at once, and is not taken for something that the launcher said."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdin=pipe, stderr=pipe, text=True) as script:
        assert script.stdin is not None
        assert script.stderr is not None
        said = [script.stderr.readline() for _ in range(3)]
        script.stdin.write("\n")
        script.stdin.close()
        said += script.stderr.readlines()
    assert said == ["reported downloading one.jar\n", "collected 1\n", "handed on\n"]
    assert script.returncode == 0


def test_a_new_session_does_not_take_the_interrupts() -> None:
    """Ctrl-C means what it meant before Spark's session made it cancel all jobs."""
    before = signal.getsignal(signal.SIGINT)
    with _kept_interrupts():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert before == signal.getsignal(signal.SIGINT)


def test_a_run_that_no_step_uses_claims_and_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster may create the resources of a run again after its end: only a step claims and opens it."""

    def refuse(*_arguments: object) -> None:
        raise AssertionError

    for name in ("claim_run", "open_pipeline", "start_session"):
        monkeypatch.setattr(resources, name, refuse)
    made = run_resource(load_settings(write_defs(tmp_path)))
    with dg.DagsterInstance.ephemeral() as instance, dg.build_resources({"run": made}, instance) as opened:
        assert isinstance(opened.run, resources.PipelineRun)
