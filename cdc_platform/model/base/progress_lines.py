"""Progress lines about long steps, for pipes and run logs."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from cdc_platform.model.base.progress import StepReport, without_frames

EVERY_S: Final = 3.5
"""Longest silence of running steps, in seconds."""


@contextmanager
def report_lines(
    reports_now: Callable[[], Sequence[StepReport]],
    write: Callable[[str], None],
    last_line_s: Callable[[], float] = lambda: 0.0,
    every_s: float = EVERY_S,
) -> Iterator[None]:
    """Write a line on the running steps when nothing has been written for some seconds.

    Steps in a row are one silence; only a pause without steps, such as a wait for news, begins another.

    Args:
        reports_now: returns the numbers of all running steps.
        write: called with a line, in a separate thread.
        last_line_s: returns the time of the last other output, by the monotonic clock.
        every_s: seconds between two lines.
    """

    def run(is_over: Event) -> None:
        since_s, was_idle = time.monotonic(), True
        while not is_over.wait(every_s / 8):
            reports, now_s = reports_now(), time.monotonic()
            if not reports and was_idle:
                # One poll without a step may fall between two steps.
                since_s = now_s
            was_idle = not reports
            if reports and now_s - max(since_s, last_line_s()) >= every_s:
                since_s = now_s
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
