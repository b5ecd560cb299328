"""Tables: nothing of a cell is lost, in a pipe or on a narrow terminal."""

from io import StringIO

import pytest
from rich.console import Console

from cdc_platform.printing.lines import open_console, print_line
from cdc_platform.printing.tables import as_text, make_grid, make_line, make_table, print_rendered
from cdc_platform_tests.control_characters import NASTY, SHOWN

LONG = "-".join(str(number) for number in range(100))


def test_a_file_has_each_row_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts find the whole content of a cell, for any length and any characters."""
    print_rendered(make_table(("name", "rows"), [(LONG, 1_234_567), (f"{NASTY}\n[red]", 8)]))
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split() == ["name", "rows"]
    assert first.split() == [LONG, "1,234,567"]
    assert second.split() == [f"{SHOWN}\\n[red]", "8"]


def test_a_narrow_terminal_wraps_long_values() -> None:
    """All characters of a cell are there at 80 columns, and no line is longer."""
    file = StringIO()
    Console(file=file, width=80).print(make_table(("a", "b"), [("x", LONG)]), make_line(LONG))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "".join(line.strip() for line in lines).count(LONG) == 2


def test_columns_of_a_grid_stand_below_each_other() -> None:
    """Names and values need no own widths; lines end with their last letter."""
    assert as_text(make_grid([("a", "1"), ("long", "2")], indent=2)) == "  a     1\n  long  2"


@pytest.mark.parametrize(
    ("environment", "has_colour"),
    [({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False), ({}, False)],
)
def test_colour_is_for_terminals_that_want_it(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    has_colour: bool,
) -> None:
    """`FORCE_COLOR` makes anything a terminal, as rich has it; `NO_COLOR` keeps colours away."""
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    print_line(("late", "red"), " by 3 s")
    assert has_colour == ("\x1b[31m" in capsys.readouterr().out)
    assert not open_console(StringIO()).is_terminal or environment
