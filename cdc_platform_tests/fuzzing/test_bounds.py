"""Bounds of one input hold independently of earlier ones, and a run survives what kills a process."""

import ctypes
import faulthandler
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import strategies as st

from cdc_platform_tests.fuzzing.bounds import Target, bounded, check_in_child

pytestmark = pytest.mark.forks

MIB = 1024**2


def take(size_bytes: int) -> None:
    """Take memory for a moment."""
    assert len(bytearray(b"x") * size_bytes) == size_bytes


def test_memory_is_that_of_one_input() -> None:
    """A large input before does not hide that a later one takes too much, though it is smaller."""
    take(200 * MIB)
    with pytest.raises(AssertionError, match="bytes of memory"), bounded(max_growth_bytes=50 * MIB):
        take(100 * MIB)
    with bounded(max_growth_bytes=50 * MIB):
        take(10 * MIB)


def test_time_is_bounded() -> None:
    """An input that takes too much of the processor's time is interrupted; other processes do not count."""
    with pytest.raises(AssertionError, match="more than"), bounded(max_seconds=0.05):
        work(5)


def work(seconds: float) -> None:
    """Take the processor's time."""
    ends_s = time.process_time() + seconds
    while time.process_time() < ends_s:
        pass


def crash(data: bytes) -> None:
    """Kill the process by one input."""
    if data == b"bad":
        # pytest would print the stack of this process, and a reader take it for a failure.
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGSEGV)


def hang(data: bytes) -> None:
    """Stay in C code, which no handler of Python's interrupts, for one input."""
    if data == b"bad":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})
        ctypes.PyDLL(None).sleep(60)


def grow(data: bytes) -> None:
    """Want more memory than there is, for one input."""
    if data == b"bad":
        take(64 * 1024 * MIB)


def fail(data: bytes) -> None:
    """Have an undocumented outcome, for one input."""
    assert data != b"bad"


@pytest.mark.parametrize(
    ("check", "ending"),
    [(crash, "SIGSEGV"), (hang, "more than 2 seconds"), (grow, "no documented"), (fail, "no documented")],
)
def test_an_input_that_ends_its_process_is_kept(check: object, ending: str, tmp_path: Path) -> None:
    """It lies in a file, and what asked for the check continues."""
    assert callable(check)
    target = Target(st.sampled_from([b"good", b"bad"]), check)
    killed = check_in_child(target, 1, 50, tmp_path, max_seconds=2)
    assert killed is not None
    assert killed.file.read_bytes() == b"bad"
    assert ending in killed.ending
    assert killed.text == "YmFk"
    assert [killed.file] == list(tmp_path.iterdir())


def test_inputs_with_outcomes_leave_nothing(tmp_path: Path) -> None:
    """A run without anything to report leaves no file."""
    assert check_in_child(Target(st.just(b"good"), fail), 1, 5, tmp_path) is None
    assert list(tmp_path.iterdir()) == []
