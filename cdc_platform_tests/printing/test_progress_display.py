"""Progress on the command line: bars on a terminal, above which lines are printed, and lines in a pipe."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import click
import pytest
from click.testing import CliRunner

from cdc_platform.cli import Commands
from cdc_platform.model.base.progress import Progress, StepReport
from cdc_platform.model.base.progress_lines import report_lines
from cdc_platform.printing import progress_display
from cdc_platform.printing.progress_display import at_rest, make_bars, show_progress, shown_step
from cdc_platform.printing.tables import as_text

CURSOR_UP: Final = "\x1b[1A"
PROGRAM: Final = """
import sys
from threading import Event
from cdc_platform.model.base.progress import Progress
from cdc_platform.printing.lines import FOOTER, print_line
from cdc_platform.printing.progress_display import show_progress
progress = Progress()
with (
    show_progress(progress),
    progress.step("copy", "chunks", 40, 10) as step,
    progress.step("accounts"),
):
    for number in range(3):
        step.advance(5)
        while sys.stderr.isatty() and FOOTER.shown is None:
            Event().wait(0.01)
        print_line(f"line {number}")
"""
INTERRUPTED: Final = """
from threading import Event
from cdc_platform.printing.lines import FOOTER, print_line
from cdc_platform.printing.progress_display import shown_step
with shown_step("look at the lakes"):
    while FOOTER.shown is None:
        Event().wait(0.01)
    with FOOTER.hidden():
        print_line("Stopping")
        print("a line")
    Event().wait(0.5)
"""
RESTING: Final = """
from threading import Event
from cdc_platform.printing.lines import FOOTER
from cdc_platform.printing.progress_display import at_rest, shown_step
with shown_step("look at the lakes"):
    while FOOTER.shown is None:
        Event().wait(0.01)
    with at_rest():
        print("resting")
        Event().wait(0.5)
        print("still resting")
"""
WITHIN_S: Final = 60.0


def output_on_terminal(program: str) -> str:
    """Return all that the program writes to a terminal of 80 columns, which it has for both streams."""
    own, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=its, stderr=its, env=environment)
    os.close(its)
    chunks, end = [], time.monotonic() + WITHIN_S
    while time.monotonic() < end and select.select([own], [], [], WITHIN_S)[0]:
        try:
            chunks.append(os.read(own, 4096))
        except OSError:  # Linux's way to say that nobody writes to a terminal any more
            break
    os.close(own)
    assert process.wait(WITHIN_S) == 0
    return b"".join(chunks).decode()


def test_a_terminal_shows_bars_and_keeps_lines() -> None:
    """The bar is drawn in place and gone at the end; each line stands above it, and the cursor returns."""
    output = output_on_terminal(PROGRAM)
    assert "copy" in output
    assert "of 40 chunks" in output
    for number in range(3):
        _, line, below = output.partition(f"line {number}\r\n")
        assert line
        assert CURSOR_UP not in below.partition("accounts")[0]
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h") > 0
    assert "of 40 chunks" not in output.rpartition("line 2")[2].rpartition("\x1b[2K")[2]


def test_a_signal_that_prints_while_a_line_is_printed_leaves_no_bar() -> None:
    """The bar is drawn again once both lines stand, and the cursor returns."""
    output = output_on_terminal(INTERRUPTED)
    assert "Stopping\r\na line\r\n" in output
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h") > 0


def test_nothing_is_drawn_at_rest() -> None:
    """The bar is gone before anything else draws on the terminal, such as a display that is refreshed."""
    before, _, after = output_on_terminal(RESTING).partition("resting")
    assert "look at the lakes" in before
    assert after.startswith("\r\nstill resting")


def test_a_pipe_gets_no_control_characters() -> None:
    """Steps that are over within seconds leave no line, and the output has lines only."""
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert (answer.stdout, answer.stderr) == ("line 0\nline 1\nline 2\n", "")


def test_bars_have_the_numbers_of_the_lines() -> None:
    """A bar stands between the name of a step and its numbers; outer steps without numbers are left out."""
    reports = (StepReport("cycle", 9.0), StepReport("checks", 4.0, "checks", 2, 8, 0.5, 12.0))
    text = as_text(make_bars(reports))
    assert text.startswith("checks  ")
    assert text.endswith("  2 of 8 checks (25 %), 0.5 checks/s, 12 s left, 4 s so far")
    assert "cycle" not in text


@pytest.fixture
def _quick_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines come after hundredths of a second."""
    monkeypatch.setattr(progress_display, "report_lines", partial(report_lines, every_s=0.02))


def run_slowly(work: Callable[[], object]) -> str:
    """Return the error output of a command of the platform's kind that does some work."""
    group = Commands("other")
    group.add_command(click.Command("slow", callback=work))
    result = CliRunner().invoke(group, ["slow"])
    assert result.exit_code == 0, result.output
    return result.stderr


@pytest.mark.usefixtures("_quick_lines")
def test_every_command_is_watched_from_its_beginning() -> None:
    """A command that shows no step of its own is not silent, before and after its own steps, either."""

    def work() -> None:
        with shown_step("look at the lake"):
            time.sleep(0.3)
        time.sleep(0.3)

    lines = run_slowly(work).splitlines()
    assert any(re.fullmatch(r"look at the lake: [\d.]+ s so far", line) for line in lines)
    assert re.fullmatch(r"cdc-platform slow: [\d.]+ s so far", lines[-1])


@pytest.mark.usefixtures("_quick_lines")
def test_a_command_at_rest_says_nothing() -> None:
    """A server that waits for its user, and cycles that wait for news, print no lines meanwhile."""

    def work() -> None:
        progress = Progress()
        with at_rest():
            time.sleep(0.2)
        with show_progress(progress), progress.rest():
            time.sleep(0.2)

    assert len(run_slowly(lambda: time.sleep(0.2)).splitlines()) >= 2
    assert len(run_slowly(work).splitlines()) <= 2


@pytest.mark.usefixtures("_quick_lines")
def test_a_rest_within_a_step_is_shown() -> None:
    """A pipeline that catches up shows that it does, also while it waits for news."""

    def work() -> None:
        progress = Progress()
        with show_progress(progress), progress.step("catch up"), progress.rest():
            time.sleep(0.3)

    assert "catch up: " in run_slowly(work)
