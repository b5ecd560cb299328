"""Progress display of the command line: bars on a terminal, lines elsewhere."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from threading import Event
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from cdc_platform.model.base.progress import Progress, StepReport, without_frames
from cdc_platform.model.base.progress_lines import in_background, report_lines
from cdc_platform.printing.lines import FOOTER, open_console, own_stderr, print_line
from cdc_platform.printing.tables import make_line

REDRAWN_EVERY_S: Final = 0.2
BAR_WIDTH: Final = 20

_SHOWN: Final[list[Progress]] = []
"""Progress that the process shows, outer ones first: the first one is that of the whole command."""


def _reports() -> Sequence[StepReport]:
    """Return the numbers of all steps that are shown; none while the innermost progress rests."""
    displays = tuple(_SHOWN)
    reports = [progress.reports() for progress in displays]
    if displays and displays[-1].is_resting and not reports[-1]:
        return ()
    return [report for of_progress in reports for report in of_progress]


@contextmanager
def show_progress(progress: Progress) -> Iterator[None]:
    """Show the running steps within the context, on the error stream, inside those of outer contexts.

    A terminal shows a bar for each step; other streams get a line if nothing has been printed for seconds.
    """
    _SHOWN.append(progress)
    try:
        with _watch() if len(_SHOWN) == 1 else nullcontext():
            yield
    finally:
        _SHOWN.remove(progress)


@contextmanager
def _watch() -> Iterator[None]:
    # Its own stream: Spark's start and a request to stop replace the process's.
    stream = own_stderr()
    console = open_console(stream)
    if console.is_interactive:
        with in_background(partial(_redraw, _Bars(console))):
            yield
    else:
        with report_lines(_reports, lambda line: print_line(line, stream=stream), lambda: FOOTER.last_line_s):
            yield


@contextmanager
def shown_step(step: str) -> Iterator[None]:
    """Show a step that may take seconds."""
    progress = Progress()
    with show_progress(progress), progress.step(step):
        yield


@contextmanager
def at_rest() -> Iterator[None]:
    """Show nothing within the context, in which a command serves others, or waits for its user."""
    progress = Progress()
    with progress.rest(), show_progress(progress):
        FOOTER.clear()
        yield


class _Bars:
    """The bars of the running steps, below the last line of a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._reports: Sequence[StepReport] = ()
        self._live: Live | None = None

    def show(self, reports: Sequence[StepReport]) -> None:
        """Replace the bars with those of these steps; show none if there are no steps."""
        self._reports = reports
        with FOOTER.lock:
            if not reports:
                FOOTER.clear()
            elif self._live is None:
                FOOTER.shown = self
                self.start()
            else:
                self._live.update(make_bars(reports), refresh=True)

    def start(self) -> None:
        """Draw the bars."""
        # A stopped `Live` would first remove as many lines as it had; other text has those lines now.
        self._live = Live(
            make_bars(self._reports),
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start(refresh=True)

    def stop(self) -> None:
        """Remove the bars."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def _redraw(bars: _Bars, is_over: Event) -> None:
    while not is_over.wait(REDRAWN_EVERY_S):
        with FOOTER.lock:  # Otherwise steps could be drawn after `at_rest` has cleared them.
            bars.show(_reports())
    bars.show(())


def make_bars(reports: Sequence[StepReport]) -> Table:
    """Return a bar with its numbers for each step; a step of unknown length has a moving bar."""
    bars = Table.grid(padding=(0, 2, 0, 0))
    bars.add_column(overflow="fold")
    bars.add_column(width=BAR_WIDTH)
    bars.add_column(overflow="fold")
    for report in without_frames(reports):
        bar = ProgressBar(report.total, report.done or 0, BAR_WIDTH, animation_time=time.monotonic())
        bars.add_row(make_line(report.name), bar, make_line(report.numbers()))
    return bars
