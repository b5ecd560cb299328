"""What the commands print: what a terminal would obey, or show in another order, is escaped as in JSON."""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import click

_OBEYED: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f"
)
"""Controls of terminals and of the direction of text, what has no width, and halves of characters."""
_IN_TEXT: Final = re.compile(f"[{_OBEYED}]")
_IN_LINE: Final = re.compile(f"[{_OBEYED}\t\n]")


def join_lines(lines: Iterable[str]) -> str:
    """Return lines as a text; none of them is more than one, whatever names and values it holds."""
    return "\n".join(_IN_LINE.sub(_escape, line) for line in lines)


def print_line(line: str = "", **style: Any) -> None:
    """Print one line, in a style as `click.secho` takes it."""
    click.secho(_IN_LINE.sub(_escape, line), **style)


def print_text(text: str, **style: Any) -> None:
    """Print a text that `join_lines` has made, JSON, or an error, whose lines stay."""
    click.secho(_IN_TEXT.sub(_escape, text), **style)


def _escape(found: re.Match[str]) -> str:
    text = json.dumps(found[0])[1:-1]
    return text if text.startswith("\\") else f"\\u{ord(found[0]):04x}"
