"""Progress as users of the command line see it: bars on a terminal, lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Final

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from cdc_platform.model.base.progress import Progress, StepReport, without_frames
from cdc_platform.model.base.progress_lines import beside, report_lines
from cdc_platform.printing.lines import FOOTER, open_console, own_stderr, print_line, stream_of
from cdc_platform.printing.tables import make_line

REDRAWN_EVERY_S: Final = 0.2
BAR_WIDTH: Final = 20


@contextmanager
def show_progress(progress: Progress) -> Iterator[None]:
    """Show the steps under way within the context, on the error stream.

    A terminal shows a bar for each; anything else gets a line when nothing has been printed for seconds.
    """
    if not open_console(stream_of(err=True)).is_interactive:
        with report_lines(progress, lambda line: print_line(line, err=True), lambda: FOOTER.last_line_s):
            yield
        return
    console = open_console(own_stderr())
    live = Live(
        console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
    )
    with beside(partial(_redraw, progress, live)):
        yield


def _redraw(progress: Progress, live: Live, is_over: Event) -> None:
    while not is_over.wait(REDRAWN_EVERY_S):
        reports = progress.reports()
        with FOOTER.lock:
            live.update(make_bars(reports), refresh=FOOTER.shown is live)
            if reports and FOOTER.shown is None:
                FOOTER.shown = live
                live.start(refresh=True)
            elif not reports:
                _remove(live)
    with FOOTER.lock:
        _remove(live)


def _remove(live: Live) -> None:
    if FOOTER.shown is live:
        FOOTER.shown = None
        live.stop()


def make_bars(reports: tuple[StepReport, ...]) -> Table:
    """Return a bar with its numbers for each step; one whose end is not known moves."""
    bars = Table.grid(padding=(0, 2, 0, 0))
    bars.add_column(overflow="fold")
    bars.add_column(width=BAR_WIDTH)
    bars.add_column(overflow="fold")
    for report in without_frames(reports):
        bar = ProgressBar(report.total, report.done or 0, BAR_WIDTH, animation_time=time.monotonic())
        bars.add_row(make_line(report.name), bar, make_line(report.numbers()))
    return bars
