"""Interruption of a session's start by Ctrl-C, without leaving traces or processes."""

import logging
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pyspark import java_gateway
from pyspark.core import context


@contextmanager
def interruptible_start() -> Iterator[None]:
    """Start a session within the context; an interruption ends the Java process that it has started."""
    with _kept_interrupts(), _ended_launcher():
        yield


@contextmanager
def _kept_interrupts() -> Iterator[None]:
    """Keep the handler of Ctrl-C: a new session would use it to cancel its jobs, even during a commit.

    Called within a call of py4j, which it breaks, Spark's handler also loses an interruption of the start. If
    py4j logs a traceback for an interrupted call, the exception itself is enough.
    """
    module, root = cast("Any", context), logging.getLogger()
    before, module.signal = module.signal, SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda *_: None)
    root.addFilter(_is_not_of_py4j)
    try:
        yield
    finally:
        root.removeFilter(_is_not_of_py4j)
        module.signal = before


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def _ended_launcher() -> Iterator[None]:
    """End the Java process if a signal interrupts its start.

    PySpark deletes the folder into which Java is about to write its port. Java then fails to write it, and
    waits forever: it would notice Python's end only later.
    """
    processes: list[subprocess.Popen[bytes]] = []

    class Launcher(subprocess.Popen[bytes]):
        """A launcher that can be found, because PySpark hides it until Java answers."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            # An interruption in between would leave a process without a reference.
            with _delayed_signals():
                super().__init__(*arguments, **options)
                processes.append(self)

    gateway: Any = java_gateway
    before, gateway.Popen = gateway.Popen, Launcher
    try:
        yield
    except BaseException as error:
        # Dagster's interruption is one of its own.
        if not isinstance(error, Exception):
            for launcher in processes:
                launcher.kill()
                launcher.wait()
        raise
    finally:
        gateway.Popen = before


@contextmanager
def _delayed_signals() -> Iterator[None]:
    """Delay signals until the end of the context; threads other than the main one handle none."""
    signals: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {number: signal.signal(number, lambda at, _: signals.append(at)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in signals:
            signal.raise_signal(each)
