"""Output of the commands: all of it is visible, and a terminal obeys none of it."""

from collections.abc import Iterable
from typing import Any

import click

from cdc_platform.visible import visible_line, visible_text


def join_lines(lines: Iterable[str]) -> str:
    """Return lines as a text; none of them is more than one, whatever names and values it holds."""
    return "\n".join(visible_line(line) for line in lines)


def print_line(line: str = "", **style: Any) -> None:
    """Print one line, in a style as `click.secho` takes it."""
    click.secho(visible_line(line), **style)


def print_text(text: str, **style: Any) -> None:
    """Print a text that `join_lines` has made, JSON, or an error, whose lines stay."""
    click.secho(visible_text(text), **style)
