"""Bounds of one input: time and memory, in this process, or in one that may die of it."""

import hashlib
import multiprocessing
import resource
import signal
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

MAX_SECONDS: Final = 10
"""For one input; most take milliseconds, and the machine may be busy."""
MAX_GROWTH_BYTES: Final = 400 * 1024**2
LIMIT_BYTES: Final = 4 * MAX_GROWTH_BYTES
"""A child that wants more than this is refused it by the system."""
_SELF: Final = Path("/proc/self")
_PEAK: Final = "VmHWM:"


class Target(NamedTuple):
    """A decoder: inputs with something wrong in them, and what holds for each."""

    inputs: st.SearchStrategy[bytes]
    check: Callable[[bytes], None]


def _memory_kib(name: str) -> int:
    """Return an entry of the process's status, such as the peak of its memory since it was reset."""
    status = (_SELF / "status").read_text().splitlines()
    return int(next(line for line in status if line.startswith(name)).split()[1])


@contextmanager
def bounded(max_seconds: float = MAX_SECONDS, max_growth_bytes: int = MAX_GROWTH_BYTES) -> Iterator[None]:
    """Fail if what is done within takes more time or memory than one input may."""

    def ring(_number: int, _frame: object) -> None:
        raise AssertionError(f"One input takes more than {max_seconds} processor seconds.")

    before = signal.signal(signal.SIGPROF, ring)
    # The kernel's peak begins again here: that of the process hides what is smaller than the largest.
    (_SELF / "clear_refs").write_text("5")
    begun_kib = _memory_kib(_PEAK)
    signal.setitimer(signal.ITIMER_PROF, max_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    grown_bytes = (_memory_kib(_PEAK) - begun_kib) * 1024
    assert grown_bytes < max_growth_bytes, f"One input takes {grown_bytes:,} bytes of memory."


def sized(examples: int, **more: Any) -> settings:
    """Return the settings of a run of so many inputs."""
    checks = list(HealthCheck)
    return settings(max_examples=examples, deadline=None, database=None, suppress_health_check=checks, **more)


def run(target: Target, data: bytes) -> None:
    """Check one input."""
    with bounded():
        target.check(data)


class Killed(NamedTuple):
    """An input that has no documented outcome: how it ended, and the file that has it."""

    ending: str
    file: Path

    @property
    def text(self) -> str:
        """The input in base64, as a corpus has it."""
        return b64encode(self.file.read_bytes()).decode()


def check_in_child(
    target: Target, number: int, examples: int, folder: Path, max_seconds: float = 6 * MAX_SECONDS
) -> Killed | None:
    """Check inputs in a separate process, which memory is limited for; return the input that ended it.

    Args:
        target: the decoder.
        number: chooses the inputs.
        examples: how many.
        folder: where an input is kept that has no documented outcome.
        max_seconds: so long after it began one input, which not even a signal may interrupt, it is killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    current = folder / f"current-{number}"
    child = multiprocessing.get_context("fork").Process(
        target=_check_all, args=(target, number, examples, current)
    )
    child.start()
    is_late = False
    while child.is_alive() and not is_late:
        child.join(0.2)
        is_late = child.is_alive() and _age_s(current) > max_seconds
    if is_late:
        child.kill()
    child.join()
    current.touch()
    if child.exitcode == 0:
        current.unlink()
        return None
    input_file = folder / hashlib.sha256(current.read_bytes()).hexdigest()[:16]
    current.rename(input_file)
    return Killed(_ending(child.exitcode, max_seconds, is_late=is_late), input_file)


def _age_s(current: Path) -> float:
    """Return how long the current input has been checked; 0 before the first."""
    return time.time() - current.stat().st_mtime if current.exists() else 0.0


def _ending(exit_code: int | None, max_seconds: float, *, is_late: bool) -> str:
    if is_late:
        return f"it took more than {max_seconds:g} seconds and was killed"
    if exit_code is not None and exit_code < 0:
        return f"it died of {signal.Signals(-exit_code).name}"
    return "it has no documented outcome, see above"


def _check_all(target: Target, number: int, examples: int, current: Path) -> None:
    """Check inputs, each of which is in the file before it is checked."""
    limit = _memory_kib("VmData:") * 1024 + LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    @sized(examples)
    @seed(number)
    @given(target.inputs)
    def check(data: bytes) -> None:
        current.write_bytes(data)
        run(target, data)

    check()
