"""Output of the commands; control characters are made visible, so no value can control the terminal.

Only terminals get colour, and not if the environment variable `NO_COLOR` is set.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Final, Protocol, TextIO

from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from cdc_platform.visible import visible_line, visible_text

Part = str | tuple[str, str]
"""A text, or a text and its style as rich writes it, such as `bold red`."""


class Display(Protocol):
    """A display below the last line of a terminal."""

    def stop(self) -> None:
        """Remove the drawing from the terminal."""

    def start(self) -> None:
        """Draw it on the terminal."""


class Footer:
    """The place below the last line, where progress is shown; lines are printed above it."""

    def __init__(self) -> None:
        self.lock: Final = RLock()
        self.shown: Display | None = None
        self.last_line_s = 0.0
        """When the last line was printed, by the monotonic clock."""

    def clear(self) -> None:
        """Remove what is shown."""
        with self.lock:
            if self.shown is not None:
                self.shown.stop()
                self.shown = None

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Make room for a line; a thread and a signal handler may do so at any time."""
        with self.lock:
            shown_line = self.shown
            # Whatever prints meanwhile, such as a signal handler, must not draw it again.
            self.clear()
            try:
                yield
            finally:
                self.last_line_s = time.monotonic()
                self.shown = shown_line
                if shown_line is not None:
                    shown_line.start()


FOOTER: Final = Footer()


class _Console(Console):
    """A console on one stream, whose reader may end before the program does."""

    def on_broken_pipe(self) -> None:
        """Write the rest nowhere, and end the program if it is the standard output that nobody reads."""
        # Rich would throw away the standard output, whichever stream nobody reads.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())
        if self.file is sys.stdout:
            raise SystemExit(1)


def join_lines(lines: Iterable[str]) -> str:
    """Join lines as a text; every name and value stays within its line."""
    return "\n".join(visible_line(line) for line in lines)


def print_line(*parts: Part, err: bool = False, stream: TextIO | None = None) -> None:
    """Print one line of parts, to the standard output, as a message, or to another stream."""
    _print([_segment(part, visible_line) for part in parts], stream or stream_of(err=err))


def print_text(text: str, style: str = "", *, err: bool = False) -> None:
    """Print a text of `join_lines`, JSON, or an error; line breaks are kept."""
    _print([_segment((text, style), visible_text)], stream_of(err=err))


def open_console(stream: TextIO) -> Console:
    """Return a console that writes to a stream without changing the text."""
    return _Console(file=stream, highlight=False, markup=False, emoji=False)


def stream_of(*, err: bool) -> TextIO:
    """Return the current error stream or standard output; tests and Spark's start replace them."""
    # Of a closed one Python has none, and rich would write messages to the standard output.
    return (sys.stderr if err else sys.stdout) or Path(os.devnull).open("w", encoding="utf-8")


def own_stderr() -> TextIO:
    """Return the real error stream, even while the writes of others to it are collected."""
    stream = stream_of(err=True)
    try:
        return os.fdopen(os.dup(stream.fileno()), "w", buffering=1, errors="replace")
    except (OSError, ValueError):
        return stream


def _segment(part: Part, visible: Callable[[str], str]) -> Segment:
    text, style = part if isinstance(part, tuple) else (part, "")
    return Segment(visible(text), Style.parse(style))


def _print(segments: list[Segment], stream: TextIO) -> None:
    with FOOTER.hidden():
        open_console(stream).print(Segments([*segments, Segment.line()]), soft_wrap=True)
