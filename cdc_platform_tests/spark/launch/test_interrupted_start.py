"""Ctrl-C while a session starts."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import py4j.java_gateway
import pytest
from pyspark import java_gateway
from pyspark.core import context

from cdc_platform.spark.launch.interrupted_start import interruptible_start


def test_py4j_logs_no_trace_while_a_session_starts(caplog: pytest.LogCaptureFixture) -> None:
    """An interrupted call raises its exception alone; other loggers, and later calls, log as before."""
    root = logging.getLogger()
    record = logging.LogRecord(root.name, logging.ERROR, py4j.java_gateway.__file__, 1, "broken", (), None)
    with interruptible_start():
        root.handle(record)
        root.error("of another")
    root.handle(record)
    assert caplog.messages == ["of another", "broken"]


def test_a_new_session_does_not_take_the_interrupts() -> None:
    """Ctrl-C means what it meant before while Spark's context starts, which would cancel all jobs with it."""
    before = signal.getsignal(signal.SIGINT)
    module: Any = context
    with interruptible_start():
        module.signal.signal(module.signal.SIGINT, signal.SIG_IGN)
        assert before == signal.getsignal(signal.SIGINT)
    assert signal is module.signal


def test_an_interrupted_start_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while PySpark waits for its launcher to answer ends the launcher."""
    home, pid_file = tmp_path / "spark", tmp_path / "pid"
    script = home / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho $$ > {pid_file}.new\nmv {pid_file}.new {pid_file}\nexec sleep 600\n")
    script.chmod(0o700)
    monkeypatch.setenv("SPARK_HOME", str(home))

    def interrupt() -> None:
        while not pid_file.exists():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    assert_ends(java_gateway.launch_gateway, pid_file)


def end_run(*_signal: object) -> None:
    """Raise what Dagster raises in a run that somebody terminates."""
    raise dg.DagsterExecutionInterruptedError


@pytest.mark.parametrize("handler", [signal.default_int_handler, end_run], ids=["ctrl-c", "dagster"])
def test_an_interrupted_launch_leaves_no_process(tmp_path: Path, handler: Callable[..., object]) -> None:
    """A signal before the launcher has replaced the copy of Python that was to start it ends that, too."""
    pid_file = tmp_path / "pid"

    def interrupt() -> None:
        pid_file.write_text(str(os.getpid()), encoding="utf-8")
        os.kill(os.getppid(), signal.SIGINT)

    launching: Any = java_gateway
    assert_ends(lambda: launching.Popen(["sleep", "600"], preexec_fn=interrupt), pid_file, handler)


def assert_ends(
    start: Callable[[], object],
    pid_file: Path,
    handler: Callable[..., object] = signal.default_int_handler,
) -> None:
    """An interruption comes out of a start, and the process of which a file has the number has ended."""
    # A shell starts what it leaves in the background with Ctrl-C ignored.
    before = signal.signal(signal.SIGINT, handler)
    interruptions = (KeyboardInterrupt, dg.DagsterExecutionInterruptedError)
    try:
        with pytest.raises(interruptions), interruptible_start():
            start()
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
