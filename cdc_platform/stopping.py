"""Stopping on a signal after the running work, or at once on a second one, with a message and no trace."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, TextIO

from cdc_platform.errors import CdcError, SetupError
from cdc_platform.printing.lines import own_stderr, print_line

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
SIGNAL_EXIT: Final = 128
"""By convention, a program that a signal ended exits with this plus the signal's number."""


@dataclass
class Stop:
    """State of a requested stop: whether a signal requested it, and which one."""

    quieten: Callable[[], None]
    terminal: TextIO
    number: int | None = None

    def is_not_asked(self) -> bool:
        """Return whether to continue."""
        return self.number is None

    @property
    def exit_code(self) -> int:
        """The exit code of a program that the signal stopped before its goal."""
        return SIGNAL_EXIT + (self.number or signal.SIGINT)

    def ask(self, number: int, _frame: FrameType | None = None) -> None:
        """Request a stop after the running work; a second call stops at once."""
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number
        # A signal to the whole process group ends Spark, too: the output, logs and traces of Spark and of its
        # client's threads about that are noise.
        self.quieten()
        logging.disable()
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  open until the end
        self.say("Stopping once the running work is done; a second signal stops at once.")

    def say(self, line: str) -> None:
        """Print a line for the user, even after other output was silenced."""
        print_line(line, stream=self.terminal)


@contextmanager
def stop_signals(quieten: Callable[[], None] = lambda: None) -> Iterator[Stop]:
    """Yield whether to continue; an exception after a signal ends the program with a one-line message.

    Args:
        quieten: called at the first signal; silences programs that would report the end at length.

    Raises:
        CdcError: the current step failed for a known reason that the signal did not cause.
        SystemExit: the signal interrupted the current step.
    """
    before = sys.stderr
    stop = Stop(quieten, own_stderr())
    with _seen_signals() as signal_seen, _handlers(stop):
        try:
            yield stop
        except (Exception, KeyboardInterrupt) as error:
            number = stop.number or signal_seen()
            is_known = isinstance(error, CdcError) and not isinstance(error, SetupError)
            if number is None or is_known:
                sys.stderr = before
                raise
            stop.say("Stopped in the middle of a step; the next start continues from there.")
            sys.exit(SIGNAL_EXIT + number)


@contextmanager
def _handlers(stop: Stop) -> Iterator[None]:
    before = {number: signal.signal(number, stop.ask) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _seen_signals() -> Iterator[Callable[[], int | None]]:
    """Yield a function that returns the first signal, even one that Spark handled during its start."""
    read_end, write_end = os.pipe()
    for end in (read_end, write_end):
        os.set_blocking(end, False)
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def first_signal() -> int | None:
        try:
            return next((number for number in os.read(read_end, 1024) if number in SIGNALS), None)
        except BlockingIOError:
            return None

    try:
        yield first_signal
    finally:
        signal.set_wakeup_fd(before)
        os.close(read_end)
        os.close(write_end)


def interruption() -> threading.Event:
    """Return an event that Ctrl-C or SIGTERM sets, for commands that run until interrupted."""
    is_over = threading.Event()
    for number in SIGNALS:
        signal.signal(number, lambda *_: is_over.set())
    return is_over
