"""Progress display of the command line: bars on a terminal, lines elsewhere."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from cdc_platform.model.base.progress import Progress, StepReport, without_frames
from cdc_platform.model.base.progress_lines import in_background, report_lines
from cdc_platform.printing.lines import FOOTER, open_console, own_stderr, print_line, stream_of
from cdc_platform.printing.tables import make_line

REDRAWN_EVERY_S: Final = 0.2
BAR_WIDTH: Final = 20


@contextmanager
def show_progress(progress: Progress) -> Iterator[None]:
    """Show the running steps within the context, on the error stream.

    A terminal shows a bar for each step; other streams get a line if nothing has been printed for seconds.
    """
    if not open_console(stream_of(err=True)).is_interactive:
        with report_lines(progress, lambda line: print_line(line, err=True), lambda: FOOTER.last_line_s):
            yield
        return
    with in_background(partial(_redraw, progress, _Bars(open_console(own_stderr())))):
        yield


@contextmanager
def shown_step(step: str) -> Iterator[None]:
    """Show a step that may take seconds."""
    progress = Progress()
    with show_progress(progress), progress.step(step):
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
                self.stop()
                FOOTER.shown = None
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


def _redraw(progress: Progress, bars: _Bars, is_over: Event) -> None:
    while not is_over.wait(REDRAWN_EVERY_S):
        bars.show(progress.reports())
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
