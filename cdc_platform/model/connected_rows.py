"""Rows that are connected by changes of keys."""

from collections.abc import Collection, Iterable

from cdc_platform.model.resolution import RowId


def connected(asked: Collection[RowId], links: Iterable[tuple[RowId, RowId]]) -> frozenset[RowId]:
    """Return some rows with all that changes of keys, whichever way, connect with them."""
    neighbours: dict[RowId, set[RowId]] = {}
    for one, other in links:
        neighbours.setdefault(one, set()).add(other)
        neighbours.setdefault(other, set()).add(one)
    found, open_ids = set(asked), list(asked)
    while open_ids:
        fresh = neighbours.get(open_ids.pop(), set()) - found
        found |= fresh
        open_ids.extend(fresh)
    return frozenset(found)
