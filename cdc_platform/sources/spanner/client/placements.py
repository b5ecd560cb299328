"""Placements: a stream with `per_placement_tvf` has a read function for each, with tokens of its own.

A partition of such a stream has a token here that names its function, too: `READ_bank_changes_asia#TOKEN`.
Without a token of its own, that is the query which lists the partitions of the placement.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from cdc_platform.model.base.names import ROOT_TOKEN

_MARK: Final = "#"


def has_placements(options: Mapping[str, str]) -> bool:
    """Return whether a stream with these options has a read function for each placement."""
    return options.get("per_placement_tvf", "").lower() == "true"


def placement_functions(
    routines: Iterable[str], whole: str, others: Iterable[str], placed_others: Iterable[str]
) -> list[str]:
    """Return the read functions of a stream's placements, by name: nothing else identifies them.

    Args:
        routines: names of all functions of the database.
        whole: what the read function of the stream would be called if it had no placements.
        others: the same of the other streams, whose functions may begin with the name of this one.
        placed_others: those of `others` whose streams have placements.
    """
    names = {other.lower() for other in others}
    longer = [other for other in placed_others if _is_of(other, whole)]
    return sorted(
        name
        for name in routines
        if _is_of(name, whole) and name.lower() not in names
        if not any(_is_of(name, other) for other in longer)
    )


def placed_token(function: str, token: str) -> str:
    """Return the token by which the platform knows a partition of a placement."""
    return f"{function}{_MARK}{token}"


def lists_partitions(token: str) -> bool:
    """Return whether a token is of a query that lists the partitions, of the stream or of a placement."""
    return token == ROOT_TOKEN or token.endswith(_MARK)


def split_token(token: str, whole: str) -> tuple[str, str]:
    """Return the read function for a partition of a stream, and the token by which that knows it.

    Args:
        token: the platform's own.
        whole: the read function of the stream if it has no placements.
    """
    function, mark, own = token.partition(_MARK)
    return (function, own) if mark and _is_of(function, whole) else (whole, token)


def _is_of(name: str, whole: str) -> bool:
    return name.lower().startswith(f"{whole}_".lower())
