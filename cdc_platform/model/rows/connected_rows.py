"""Rows that are connected by changes of keys."""

from collections.abc import Collection, Iterable, Mapping

from cdc_platform.model.rows.resolution import RowId

Link = tuple[RowId, RowId]
"""The ids of a row after and before a change of its key."""


def key_chains_of(row_ids: Collection[RowId], links: Iterable[Link]) -> Mapping[RowId, str]:
    """Return rows and all that changes of keys, whichever way, connect with them, each with its key chain.

    A key chain is named by one of its keys.
    """
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
