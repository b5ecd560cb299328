"""Steps under way: what is counted, the rate, the time left, and the lines that say so."""

import re
import time
from threading import Event

import pytest

from cdc_platform.model.base.progress import (
    Progress,
    Step,
    TaskCount,
    without_frames,
)
from cdc_platform.model.base.progress_lines import report_lines


def test_rate_and_time_left_are_of_what_this_run_does() -> None:
    """A copy that continues from 40 of 100 chunks and does 20 in 10 s has 20 s left."""
    step = Step("copy", "chunks", 100, 40, begun_s=0.0)
    step.advance(20)
    report = step.report(10.0)
    assert (report.rate, report.left_s) == (2.0, 20.0)
    assert report.describe() == "copy: 60 of 100 chunks (60 %), 2 chunks/s, 20 s left, 10 s so far"


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Step("read", begun_s=0.0), "read: 10 s so far"),  # nothing to count
        (Step("read", "records", begun_s=0.0), "read: 10 s so far"),  # nothing counted yet
        (Step("read", "records", None, 0, "of 3 files", 0.0), "read: of 3 files, 10 s so far"),
        (Step("checks", "checks", 4, begun_s=0.0), "checks: 0 of 4 checks (0 %), 10 s so far"),
    ],
)
def test_unknown_numbers_are_left_out(step: Step, expected: str) -> None:
    """A line has what is known, and the time so far in any case."""
    assert expected == step.report(10.0).describe()


def test_work_that_did_nothing_is_not_counted() -> None:
    """A try that returns None is done again in another way, which then counts."""
    step = Step("merge", "tables", 2)
    work = step.counting(lambda outcome: outcome)
    assert work(None) is None
    assert work(1) == 1
    assert step.done == 1


def test_a_total_that_is_not_known_leaves_the_rate() -> None:
    """Records that are read until there are no more have a rate and no end."""
    step = Step("read", "records", begun_s=0.0)
    step.advance(50_000)
    assert step.report(10.0).describe() == "read: 50,000 records, 5,000 records/s, 10 s so far"


def test_the_innermost_step_shows_the_tasks_of_spark() -> None:
    """A step that counts nothing shows tasks; one that does is followed by them; frames are left out."""
    progress = Progress()
    progress.count_tasks = lambda: TaskCount((7,), 3, 12)
    with progress.step("cycle"), progress.step("read"):
        shown = without_frames(progress.reports())
    assert [(report.name, report.done, report.total) for report in shown] == [("read", 3, 12)]
    with progress.step("merge", "tables", 5) as step:
        step.advance()
        shown = without_frames(progress.reports())
    assert [(report.name, report.done, report.total) for report in shown] == [
        ("merge", 1, 5),
        ("tasks", 3, 12),
    ]
    assert progress.reports() == ()


def test_long_steps_say_where_they_are() -> None:
    """A line comes every few seconds while a step runs; none without a step, or soon after another line."""
    progress, has_line = Progress(), Event()
    lines: list[str] = []

    def write(line: str) -> None:
        lines.append(line)
        has_line.set()

    with report_lines(progress.reports, write, every_s=0.05), progress.step("read"):
        assert has_line.wait(10)
    assert re.fullmatch(r"read: [\d.]+ s so far", lines[0])
    count = len(lines)
    with report_lines(progress.reports, write, every_s=0.05):
        has_line.clear()
        assert not has_line.wait(0.2)
    with report_lines(progress.reports, write, lambda: float("inf"), 0.05), progress.step("read"):
        assert not has_line.wait(0.2)
    assert count == len(lines)


def test_short_steps_in_a_row_are_one_silence() -> None:
    """A line comes although each step ends before one is due; a pause without steps begins a new silence."""
    progress, has_line = Progress(), Event()

    def write(_line: str) -> None:
        has_line.set()

    with report_lines(progress.reports, write, every_s=1.0):
        end = time.monotonic() + 20
        while not has_line.is_set() and time.monotonic() < end:
            with progress.step("read"):
                has_line.wait(0.2)
        assert has_line.is_set()
    has_line.clear()
    with report_lines(progress.reports, write, every_s=1.0):
        assert not has_line.wait(1.2)
        with progress.step("read"):
            assert not has_line.wait(0.3)
