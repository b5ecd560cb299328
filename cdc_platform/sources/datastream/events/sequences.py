"""Sequences that users supply, in the grammar of BigQuery's `_CHANGE_SEQUENCE_NUMBER`."""

import re
from typing import Final

from cdc_platform.errors import RecordUnreadable

_SECTIONS: Final = re.compile(r"[0-9A-Fa-f]{1,16}(?:/[0-9A-Fa-f]{1,16}){0,3}", re.ASCII)


def sequence_order(text: object) -> str:
    """Return a sequence in a form whose text order is BigQuery's order.

    A sequence has one to four sections of one to sixteen hex digits, separated by `/`. Sections compare as
    unsigned numbers from left to right, and a longer sequence follows those that it begins with. What
    follows the result in an ordering key must begin with a character below `/`.

    Raises:
        RecordUnreadable: it is no such text.
    """
    if not isinstance(text, str) or _SECTIONS.fullmatch(text) is None:
        raise RecordUnreadable(
            "A sequence has one to four sections of one to sixteen hex digits, separated by `/`, "
            f"and not: {text!r}"
        )
    return "/".join(f"{int(section, 16):016x}" for section in text.split("/"))
