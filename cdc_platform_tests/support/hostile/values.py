"""Values that nothing can hold, which every source may send in the midst of good ones."""

from typing import Final, NamedTuple

HALF: Final = "\ud800"
"""Half of a surrogate pair: JSON can have it escaped, and no text of Unicode has it."""
BEYOND: Final = 10**20
"""Beyond 64 bits."""
EXPONENTS: Final = ("1e99999999999999999999", "1e999999999", "1e999999", "-1e-99999999999999999999")
DEEP: Final = 3_000
"""Levels that no parser goes down."""
COLLIDING: Final = {
    "dotless i": ("adi", "ad\u0131"),
    "sigma": ("\u03c3", "\u03c2"),
    "long s": ("s", "\u017f"),
}
"""Two names each that differ for Python and are one for Spark."""
NUMBER: Final = "NUMBER"
"""Stands for a value that Python cannot write."""
NOT_UNICODE: Final = "has a text that is not Unicode (half of a surrogate pair)"


class Bad(NamedTuple):
    """Input, and a part of the reason that quarantine has for it."""

    sent: str
    reason: str


def written(raw: str, text: str) -> str:
    """Return a text with a value, as it is written, in the place of `NUMBER`."""
    assert f'"{NUMBER}"' in text
    return text.replace(f'"{NUMBER}"', raw)


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    """Return the JSON of arrays, or of objects, in each other."""
    return f"{opening * depth}1{closing * depth}"
