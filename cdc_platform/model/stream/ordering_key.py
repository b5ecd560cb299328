"""Ordering keys: text that sorts in the source's own order."""

import re
from typing import Final

COMMIT_DIGITS: Final = 18
"""Decimal digits of a commit timestamp in an ordering key; enough for the year 9999."""
MOD_ORDINAL_DIGITS: Final = 10
"""Decimal digits of a mod's position in its record."""
SEPARATOR: Final = " "
"""Separator of the parts of an ordering key. It sorts before every character of an identifier, so an
identifier sorts before its own extensions."""

PLACE_PARTS: Final = 2
"""Number of parts of a Debezium event's ordering key that name the record of the database's log: the
commit and the position. Both halves of a key change come from one record."""

_HEX_PAIR: Final = re.compile(r"(?:([0-9A-Fa-f]{1,16})-)?([0-9A-Fa-f]{1,16})")


def place_of(ordering_key: str) -> str:
    """Return the part of a Debezium event's ordering key that both halves of a key change share."""
    return SEPARATOR.join(ordering_key.split(SEPARATOR)[:PLACE_PARTS])


def record_order(record_sequence: str) -> str:
    """Return a record sequence as text that sorts in the order of the transaction.

    Spanner writes `0000000a` or `963d1af435fb3e79-00000000`: a high and a low unsigned 64-bit number in
    hex; a missing high number is zero. Both become 16 + 16 hex digits. A sequence of decimal digits keeps its
    order when it is read as hex. Any other text gets the prefix `~`, and sorts after all numbers, by code
    points.
    """
    match = _HEX_PAIR.fullmatch(record_sequence)
    if match is None:
        return f"~{record_sequence}"
    high, low = match.groups(default="0")
    return f"{int(high, 16):016x}{int(low, 16):016x}"
