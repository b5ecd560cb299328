"""Printed text shows names and values as they are, and no terminal obeys them."""

import json
import os
import subprocess
import sys
from typing import Final

import pytest

from cdc_platform.commands.operating.quarantine import describe_quarantined_records
from cdc_platform.errors import SettingError, SparkUnreachable
from cdc_platform.model.stream.quarantined_records import QuarantinedRecord
from cdc_platform.printing.lines import join_lines, print_line, print_text
from cdc_platform.printing.tables import as_text
from cdc_platform_tests.control_characters import NASTY, SHOWN

TWO_STREAMS: Final = """
from cdc_platform.printing.lines import own_stderr, print_line
print_line("a step", stream=own_stderr())
print_line("a message", err=True)
print_line("a row")
"""
BROKEN: Final = "import os; end, other = os.pipe(); os.close(end); os.dup2(other, {fd})"


def test_controls_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """A line is one line, and a text keeps its own lines; letters of any language stay."""
    print_line((f"{NASTY}\nnext\ttab", "red"), err=True)
    print_text(f"{NASTY}\nnäxt\t日本")
    printed = capsys.readouterr()
    assert printed.err == f"{SHOWN}\\nnext\\ttab\n"
    assert printed.out == f"{SHOWN}\nnäxt\t日本\n"
    assert join_lines(["one\nforged", "two"]) == "one\\nforged\ntwo"


def test_json_stays_the_same_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Escaped text parses to the same value."""
    print_text(json.dumps([NASTY], ensure_ascii=False, indent=2))
    assert json.loads(capsys.readouterr().out) == [NASTY]


def test_a_table_of_quarantine_has_no_forged_line() -> None:
    """A name of the source with a line end in it is not a second line."""
    record = QuarantinedRecord(1, "why", "p", 0, None, "r\n     0  open      accounts", "t\x1b[2J", None)
    lines = as_text(describe_quarantined_records([record])).splitlines()
    assert lines[1].split(maxsplit=3) == ["1", "open", "t\\u001b[2J", "r\\n     0  open      accounts"]


def test_errors_contain_no_password_of_an_address() -> None:
    """They are escaped wherever errors are raised or shown."""
    text = str(SparkUnreachable("No answer: jdbc:postgresql://me:hush@host/db and https://u:p%40@h"))
    assert text == "No answer: jdbc:postgresql://me:(hidden)@host/db and https://u:(hidden)@h"
    assert "hush" not in str(SettingError("lake.catalog.uri", "is wrong: http://:hush@h"))


@pytest.mark.parametrize(
    ("streams", "code", "rows"),
    [
        (BROKEN.format(fd=2), 0, "a row\n"),  # such as `2>&1 > rows.csv | head -1`
        ("import os, sys; os.close(2); sys.stderr = None", 0, "a row\n"),  # Python's form of `2>&-`
        (BROKEN.format(fd=1), 1, ""),
    ],
)
def test_messages_that_nobody_reads_take_no_rows_with_them(streams: str, code: int, rows: str) -> None:
    """Only the end of the standard output's reader ends a program, and neither leaves a trace."""
    program = [sys.executable, "-c", f"{streams}\n{TWO_STREAMS}"]
    answer = subprocess.run(program, capture_output=True, text=True, env=os.environ, check=False)
    assert (answer.returncode, answer.stdout) == (code, rows)
    assert "Traceback" not in answer.stderr
