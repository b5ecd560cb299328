"""Child processes of the demo, their ports and their logs; none of them outlives the demo."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from cdc_platform.errors import SetupError

HOME_VARIABLE: Final = "CDC_PLATFORM_DEMO_HOME"
"""Environment variable that marks every process of a demo, down to the last descendant, with its home."""

CHILD_VARIABLE: Final = "CDC_PLATFORM_DEMO_CHILD"
"""Environment variable with the name of the demo's child from which a process descends."""

STOP_WITHIN_S: Final = 30.0
STORES_CLASSES: Final = b"-XX:ArchiveClassesAtExit="
"""Option of a Java process that takes some seconds to write the archive of its classes when it ends."""
CLEANS_UP_WITHIN_S: Final = 4.0
NO_SIGNAL: Final = 0
_EXECVE_WITHIN_S: Final = 1.0
_KERNEL_THREAD: Final = 0x00200000
"""Flag PF_KTHREAD of Linux: such a thread never has an environment."""
_FIRST_VALUE: Final = 3
_STATE_FLAGS_ENVIRONMENT: Final = (3, 9, 50, 51)
"""Numbers of values in `/proc/PID/stat`, counted from 1; the last two are the bounds of the environment."""
TAIL_LINES: Final = 15

DIE_WITH_PARENT: Final = """
import ctypes, os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the demo has ended already")
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Runs in the child before the command. A `preexec_fn` would fork a process in which gRPC has threads."""


class Children:
    """Child processes by name, stopped together when the context ends.

    They stay in the demo's process group, so a signal to the group reaches all of them. On Linux they die
    with the demo even if it is killed, and processes that they started are found by their environment. Only
    a Java process that has been ended may still write the archive of its classes after the context.
    """

    def __init__(self, home: Path, logs: Path) -> None:
        self._home, self._logs = home, logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        os.environ[HOME_VARIABLE] = str(home)

    def __enter__(self) -> Self:
        end_leftovers(self._home)
        return self

    def __exit__(self, *_error: object) -> None:
        mark = f"{HOME_VARIABLE}={self._home}"
        # A killed Java process would leave no archive of its classes for the next start.
        storing = {pid for pid in _find_marked(mark) if _stores_classes(pid)}
        _send(signal.SIGTERM, _find_marked(mark), except_pids=storing)
        _send(signal.SIGKILL, set(_find_marked(mark)) - storing)
        for process in self._processes.values():
            # Without /proc, this is the first signal.
            if process.pid not in storing:
                end_process(process, STOP_WITHIN_S)

    def log_of(self, name: str) -> Path:
        """Return the log file of a process."""
        return self._logs / f"{name}.log"

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start a process whose output goes to its log file."""
        with self.log_of(name).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603  the demo's own commands
                [sys.executable, "-c", DIE_WITH_PARENT, str(os.getpid()), *command],
                env={**os.environ, **(environment or {}), CHILD_VARIABLE: name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes[name] = process

    def adopt(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        """Take ownership of a running process."""
        self._processes[name] = process

    def stop(self, name: str, number: int = signal.SIGTERM, within_s: float = STOP_WITHIN_S) -> None:
        """End a process and all its descendants, by force if they do not end in time."""
        process = self._processes.pop(name)
        with suppress(subprocess.TimeoutExpired):
            process.send_signal(number)
            process.wait(within_s)
        marks = f"{CHILD_VARIABLE}={name}", f"{HOME_VARIABLE}={self._home}"
        # First the descendants, so that the process itself can still clean up after them.
        _send(signal.SIGKILL, set(_find_marked(*marks)) - {process.pid})
        end_process(process, CLEANS_UP_WITHIN_S, NO_SIGNAL)

    def check(self) -> None:
        """Check that all processes are alive.

        Raises:
            SetupError: a process has ended; the message contains the end of its log.
        """
        for name, process in self._processes.items():
            if process.poll() is not None:
                log = self.log_of(name)
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
                tail = "\n".join(lines[-TAIL_LINES:])
                raise SetupError(
                    f"The demo's process `{name}` has ended ({process.returncode}): {log}\n{tail}"
                )


def end_process(process: "subprocess.Popen[bytes]", within_s: float, number: int = signal.SIGTERM) -> None:
    """End a process with a signal, or by force if it does not end in time; do nothing if it has ended."""
    with suppress(ProcessLookupError):
        process.send_signal(number)
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_leftovers(home: Path) -> None:
    """Kill the leftovers of an earlier demo of the same home, such as a run that outlived its server."""
    _send(signal.SIGKILL, _find_marked(f"{HOME_VARIABLE}={home}"))


def _send(number: int, pids: Iterable[int], except_pids: Collection[int] = ()) -> None:
    """Send a signal to processes, and wait until those that are not spared end, or the time is up."""
    running = set(pids)
    for pid in running:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    deadline = time.monotonic() + STOP_WITHIN_S
    while any(_environment(pid) for pid in running.difference(except_pids)) and time.monotonic() < deadline:
        time.sleep(0.05)


def _stores_classes(pid: int) -> bool:
    with suppress(OSError):
        return STORES_CLASSES in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _environment(pid: int) -> set[bytes]:
    """Return the environment of a process; it is empty once the process has ended."""
    deadline = time.monotonic() + _EXECVE_WITHIN_S
    with suppress(OSError):
        while True:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            if environment or not _may_show_more(pid) or time.monotonic() > deadline:
                return set(environment.split(b"\0")) - {b""}
    return set()


def _may_show_more(pid: int) -> bool:
    """Return whether a process that showed no environment may have one: it is becoming another program."""
    values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    state, flags, first, end = (values[number - _FIRST_VALUE] for number in _STATE_FLAGS_ENVIRONMENT)
    has_ended = state in "ZX"
    return not (has_ended or int(flags) & _KERNEL_THREAD or first == end != "0")


def _find_marked(*marks: str) -> Iterator[int]:
    """Yield the processes that carry all marks in their environment; none without /proc."""
    marks_as_bytes = {mark.encode() for mark in marks}
    for environ in Path("/proc").glob("[0-9]*/environ"):
        pid = int(environ.parent.name)
        if pid not in (os.getpid(), os.getppid()) and marks_as_bytes <= _environment(pid):
            yield pid


LOOPBACK: Final = "127.0.0.1"
_PROBE_S: Final = 1.0


def free_port() -> int:
    """Return a free port of loopback."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Return whether a program listens on a port of loopback."""
    with socket.socket() as probe:
        probe.settimeout(_PROBE_S)
        return probe.connect_ex((LOOPBACK, port)) == 0
