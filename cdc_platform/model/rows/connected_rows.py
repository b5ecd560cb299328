"""Rows that are connected by changes of keys."""

from collections.abc import Collection, Iterable, Mapping

from cdc_platform.model.rows.resolution import RowId


def connected(row_ids: Collection[RowId], links: Iterable[tuple[RowId, RowId]]) -> frozenset[RowId]:
    """Return some rows with all that changes of keys, whichever way, connect with them."""
    return frozenset(key_chains_of(row_ids, links))


def key_chains_of(row_ids: Collection[RowId], links: Iterable[tuple[RowId, RowId]]) -> Mapping[RowId, str]:
    """Return the same rows, each with the key of one: that one stands for all that are connected with it."""
    neighbours: dict[RowId, list[RowId]] = {}
    for row, other in links:
        neighbours.setdefault(row, []).append(other)
        neighbours.setdefault(other, []).append(row)
    chains: dict[RowId, str] = {}
    for first in sorted(row_ids):
        open_ids = [first]
        while open_ids:
            row_id = open_ids.pop()
            if row_id not in chains:
                chains[row_id] = first[1]
                open_ids.extend(neighbours.get(row_id, ()))
    return chains
