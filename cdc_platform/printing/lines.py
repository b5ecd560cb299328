"""Output of the commands: all of it is visible, and a terminal obeys none of it.

Colour is for terminals only, and not where the environment variable `NO_COLOR` is set.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final, Protocol, TextIO

from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from cdc_platform.visible import visible_line, visible_text

Part = str | tuple[str, str]
"""A text, or a text and its style as rich writes it, such as `bold red`."""


class Redrawn(Protocol):
    """What is drawn below the last line of a terminal."""

    def stop(self) -> None:
        """Remove it."""

    def start(self) -> None:
        """Draw it."""


class Footer:
    """The place below the last line, where progress is shown; lines are printed above it."""

    def __init__(self) -> None:
        self.lock: Final = RLock()
        self.shown: Redrawn | None = None
        self.last_line_s = 0.0
        """When the last line was printed, by the monotonic clock."""

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Make room for a line; a thread and a signal handler may do so at any time."""
        with self.lock:
            shown = self.shown
            if shown is not None:
                shown.stop()
            try:
                yield
            finally:
                self.last_line_s = time.monotonic()
                if shown is not None:
                    shown.start()


FOOTER: Final = Footer()


def join_lines(lines: Iterable[str]) -> str:
    """Return lines as a text; none of them is more than one, whatever names and values it holds."""
    return "\n".join(visible_line(line) for line in lines)


def print_line(*parts: Part, err: bool = False) -> None:
    """Print one line of parts, to the standard output or as a message."""
    _print([_segment(part, visible_line) for part in parts], stream_of(err=err))


def print_text(text: str, style: str = "", *, err: bool = False) -> None:
    """Print a text that `join_lines` has made, JSON, or an error, whose lines stay."""
    _print([_segment((text, style), visible_text)], stream_of(err=err))


def open_console(stream: TextIO) -> Console:
    """Return the console that writes to a stream, and changes nothing of what it is given."""
    return Console(file=stream, highlight=False, markup=False, emoji=False)


def stream_of(*, err: bool) -> TextIO:
    """Return the error stream or the standard output of now; tests and Spark's start replace them."""
    return sys.stderr if err else sys.stdout


def own_stderr() -> TextIO:
    """Return the error stream, also for the time in which what others write to it is collected."""
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", buffering=1, errors="replace")
    except (OSError, ValueError):
        return sys.stderr


def _segment(part: Part, visible: Callable[[str], str]) -> Segment:
    text, style = part if isinstance(part, tuple) else (part, "")
    return Segment(visible(text), Style.parse(style))


def _print(segments: list[Segment], stream: TextIO) -> None:
    with FOOTER.hidden():
        open_console(stream).print(Segments([*segments, Segment.line()]), soft_wrap=True)
