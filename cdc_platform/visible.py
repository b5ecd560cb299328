"""Texts for output: characters that control a terminal or the direction of text are escaped as in JSON."""

import json
import re
from typing import Final

_CONTROLS: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f"
)
"""Controls of terminals and of the direction of text, characters without width, and lone surrogates."""
_IN_TEXT: Final = re.compile(f"[{_CONTROLS}]")
_IN_LINE: Final = re.compile(f"[{_CONTROLS}\t\n]")


def visible_text(text: str) -> str:
    """Return a text with its line ends kept and all other unprintable characters escaped."""
    return _IN_TEXT.sub(_escape, text)


def visible_line(text: str) -> str:
    """Return a text as one line, even if its names and values contain line breaks."""
    return _IN_LINE.sub(_escape, text)


def shorten(text: str, max_characters: int) -> str:
    """Return a text that is cut off, with dots, beyond a number of characters."""
    return text if len(text) <= max_characters else f"{text[:max_characters]}..."


def _escape(match: re.Match[str]) -> str:
    text = json.dumps(match[0])[1:-1]
    return text if text.startswith("\\") else f"\\u{ord(match[0]):04x}"
