"""Progress lines about long steps, for pipes and run logs."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from cdc_platform.model.base.progress import Progress, without_frames

EVERY_S: Final = 4.0
"""Longest silence of a step, in seconds."""


@contextmanager
def report_lines(
    progress: Progress,
    write: Callable[[str], None],
    last_line_s: Callable[[], float] = lambda: 0.0,
    every_s: float = EVERY_S,
) -> Iterator[None]:
    """Write a line on the running steps every few seconds while the outermost one runs.

    Args:
        progress: the steps.
        write: called with a line, in a separate thread.
        last_line_s: returns the time of the last other output, by the monotonic clock.
        every_s: seconds between two lines.
    """

    def run(is_over: Event) -> None:
        written_s = 0.0
        while not is_over.wait(every_s / 8):
            reports = progress.reports()
            if not reports:
                continue
            now_s = time.monotonic()
            if now_s - max(written_s, last_line_s()) >= every_s <= reports[0].elapsed_s:
                written_s = now_s
                write("; ".join(report.describe() for report in without_frames(reports)))

    with in_background(run):
        yield


@contextmanager
def in_background(run: Callable[[Event], None]) -> Iterator[None]:
    """Run a function in a separate thread; the end of the context sets its event and waits for it."""
    is_over = Event()
    thread = Thread(target=run, args=(is_over,), daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
