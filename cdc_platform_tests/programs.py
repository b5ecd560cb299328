"""The command line as a real process, in a separate process group that ends with the test."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc_platform.demo.processes import end_leftovers
from cdc_platform_tests.java_options import INTERPRETED, SHORT_LIVED, VARIABLE

ENVIRONMENT: Final = {**os.environ}
"""The environment before the first test, without later changes by tests."""

BRIEF_SPARK: Final = {**ENVIRONMENT, VARIABLE: f"{SHORT_LIVED} {INTERPRETED}"}
"""The environment of a program that starts a Spark whose settings no test writes."""

PORTS: Final = (20_000, 32_000)
"""Below the ports of which the system takes one for every connection, and so many that two seldom meet."""

COMMAND_LINE: Final = "cdc_platform.cli"
BANK: Final = "cdc_platform_tests.servers.bank"


@dataclass(frozen=True)
class Program:
    """A process that runs, and the file to which it writes its output."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def output(self) -> str:
        """Return what it has written so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, text: str, within_s: float, times: int = 1) -> None:
        """Return when it has written a text; fail when it ends before that, or takes too long."""
        self.wait_for_match(re.escape(text), within_s, times)

    def wait_for_match(self, pattern: str, within_s: float, times: int = 1) -> None:
        """Return when what it has written matches; fail when it ends before that, or takes too long."""
        give_up_at = time.monotonic() + within_s
        while len(re.findall(pattern, self.output())) < times:
            assert self.process.poll() is None, f"It ended without writing {pattern!r}:\n{self.output()}"
            assert time.monotonic() < give_up_at, f"No {pattern!r} within {within_s} s:\n{self.output()}"
            time.sleep(0.05)

    def ends_with(self, within_s: float) -> int:
        """Return its exit code; fail when it takes too long."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"It did not end within {within_s} s:\n{self.output()}") from None

    def kill_group(self) -> None:
        """Kill it and all that is in its process group, as `kill -9` does; twice is fine."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def start(
    log: Path, module: str, *arguments: str | Path, environment: Mapping[str, str] = ENVIRONMENT
) -> Iterator[Program]:
    """Yield a module that runs as a program; its process group is killed at the end in any case."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with start_command(log, command, {**environment, "PYTHONUNBUFFERED": "1"}) as program:
        yield program


@contextmanager
def start_command(
    log: Path, command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> Iterator[Program]:
    """Yield a command that runs, in a folder if one is given; its process group is killed at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    program = Program(process, log)
    try:
        yield program
    finally:
        program.kill_group()


def free_port() -> int:
    """Return an unused port of loopback outside the range that systems assign."""
    while True:
        port = random.randrange(*PORTS)  # noqa: S311  no secret
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def running_demo(folder: Path, *options: str) -> Iterator[Program]:
    """Yield the demo that runs with its home in a folder; nothing that it has started outlives the test."""
    home, log = folder / "my home", folder / "demo.log"
    try:
        with start(log, COMMAND_LINE, "demo", "--home", home, *options, environment=BRIEF_SPARK) as program:
            yield program
    finally:
        end_leftovers(home)
