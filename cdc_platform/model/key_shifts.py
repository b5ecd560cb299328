"""Statements that shift keys: a delete counts for the row whose address it has, not for the key's new row.

Oracle checks keys at the end of a statement, so `id = id + 1` may write the new row of a key before it
removes the old one. By the order of the log alone the key would be gone. Both are of one transaction, and
their addresses differ: then the write comes last, whichever of them is read first.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

AFTER: Final = " ~"
"""What makes an order key one that follows it, and precedes whatever followed it."""


@dataclass(frozen=True)
class Half:
    """One half of a key change: it removes a key's row, or writes it.

    Args:
        event_id: its event.
        table: its table.
        transaction_id: its transaction.
        keys: JSON of the key.
        address: physical address of the row.
        order_key: its place in the source's order.
        is_removal: whether it is the half that removes.
    """

    event_id: str
    table: str
    transaction_id: str
    keys: str
    address: str
    order_key: str
    is_removal: bool


def shifted_orders(ours: Iterable[Half], earlier: Iterable[Half]) -> Mapping[str, str]:
    """Return new order keys of halves, by event: of those that are of another row than the key's other half.

    Args:
        ours: halves that enter the log now.
        earlier: halves of the same transactions that are in the log; their order keys stay.
    """
    known: defaultdict[tuple[str, str, str], list[Half]] = defaultdict(list)
    new, old = list(ours), list(earlier)
    for half in (*new, *old):
        known[_row(half)].append(half)
    logged = {half.event_id for half in old}
    found = {}
    for half in new:
        order = _shifted(half, known[_row(half)], logged)
        if order is not None:
            found[half.event_id] = order
    return found


def _row(half: Half) -> tuple[str, str, str]:
    return half.table, half.transaction_id, half.keys


def _shifted(half: Half, others: Iterable[Half], logged: Iterable[str]) -> str | None:
    of_other_rows = [one for one in others if one.address != half.address]
    if not half.is_removal:
        later = [one.order_key for one in of_other_rows if one.is_removal and one.order_key > half.order_key]
        return f"{max(later)}{AFTER}" if later else None
    written = [
        one.order_key
        for one in of_other_rows
        if not one.is_removal and one.order_key < half.order_key and one.event_id in logged
    ]
    # Without its last character a text comes right before itself.
    return max(written)[:-1] if written else None
