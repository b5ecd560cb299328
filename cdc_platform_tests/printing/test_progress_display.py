"""Progress on the command line: bars on a terminal, above which lines are printed, and lines in a pipe."""

import os
import pty
import select
import subprocess
import sys
import time
from typing import Final

from cdc_platform.model.base.progress import StepReport
from cdc_platform.printing.progress_display import make_bars
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
WITHIN_S: Final = 60.0


def output_on_terminal() -> str:
    """Return all that the program writes to a terminal of 80 columns, which it has for both streams."""
    own, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=its, stderr=its, env=environment)
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
    output = output_on_terminal()
    assert "copy" in output
    assert "of 40 chunks" in output
    for number in range(3):
        _, line, below = output.partition(f"line {number}\r\n")
        assert line
        assert CURSOR_UP not in below.partition("accounts")[0]
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h") > 0
    assert "of 40 chunks" not in output.rpartition("line 2")[2].rpartition("\x1b[2K")[2]


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
