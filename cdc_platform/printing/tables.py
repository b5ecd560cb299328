"""Tables of the commands, as wide as the terminal and unlimited elsewhere; no text is truncated."""

from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cdc_platform.printing.lines import FOOTER, open_console, print_text, stream_of
from cdc_platform.visible import visible_line

NO_LIMIT: Final = 1_000_000
"""Width of a line in a file, in characters."""

Cell = str | int | tuple[str, str]
"""A text or number, or a text and its style; numbers are right-aligned."""


def make_table(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    """Return a table with a heading for each column."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    return _fill(table, headings, list(rows))


def make_grid(rows: Iterable[Sequence[Cell]], *, indent: int = 0) -> Padding:
    """Return a grid of rows with equally many cells, such as names and values."""
    all_rows = list(rows)
    table = _fill(Table.grid(padding=(0, 2, 0, 0)), [""] * max(map(len, all_rows), default=0), all_rows)
    return Padding(table, (0, 0, 0, indent), expand=False)


def make_line(text: str = "", style: str = "") -> Text:
    """Return a line that can stand between tables."""
    return Text(visible_line(text), style, overflow="fold")


def as_text(*parts: RenderableType) -> str:
    """Return tables and lines as the text of a file."""
    file = StringIO()
    Console(file=file, width=NO_LIMIT, color_system=None, highlight=False).print(Group(*parts))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def print_rendered(*parts: RenderableType) -> None:
    """Print tables and lines to the standard output."""
    console = open_console(stream_of(err=False))
    if not console.is_terminal:
        print_text(as_text(*parts))
        return
    with FOOTER.hidden():
        console.print(Group(*parts))


def open_live() -> Live | None:
    """Return a live display on the standard output; None if that is not a terminal."""
    console = open_console(stream_of(err=False))
    return Live(console=console, auto_refresh=False) if console.is_interactive else None


def _fill(table: Table, headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    for number, heading in enumerate(headings):
        is_number = any(isinstance(row[number], int) for row in rows)
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(_as_cell, row))
    return table


def _as_cell(cell: Cell) -> Text:
    text, style = cell if isinstance(cell, tuple) else (cell, "")
    return make_line(f"{text:,}" if isinstance(text, int) else text, style)
