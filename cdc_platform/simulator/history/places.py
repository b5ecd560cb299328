"""Places of keys in the key space that partitions divide: tables side by side, keys in their order."""

from typing import Final

from cdc_platform.simulator.history.partitions import SPACE
from cdc_platform.simulator.history.schema import ACCOUNTS, ALL_TYPES, DOCUMENTS
from cdc_platform.simulator.history.transactions import Key

_REGIONS: Final = 8
"""Accounts have the first three eighths, transfers the next three, and all others the rest."""
_SHARE: Final = SPACE // _REGIONS


def place(table: str, key: Key, capacity: int) -> int:
    """Return the place of a key; in one table a greater key has a greater place, or the same."""
    first = key[0]
    if table.startswith(ACCOUNTS):
        return int(3 * _SHARE * first) // capacity
    if table == ALL_TYPES:
        return 6 * _SHARE + int(first) * _SHARE // 1000
    if table == DOCUMENTS:
        return 7 * _SHARE + int(first) * _SHARE // 1000
    fraction = int(first[:8], 16)
    if table.startswith("transfers"):
        return 3 * _SHARE + fraction * 3 * _SHARE // SPACE
    return 7 * _SHARE + fraction * _SHARE // SPACE
