"""Placements: a stream with `per_placement_tvf` has a read function for each placement, with its own tokens.

The platform's token of such a partition also names its function: `READ_bank_changes_asia#TOKEN`. Without the
partition's own token, it stands for the query that lists the partitions of the placement.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from cdc_platform.model.base.names import ROOT_TOKEN

_MARK: Final = "#"


def has_placements(options: Mapping[str, str]) -> bool:
    """Return whether a stream with these options has a read function for each placement."""
    return options.get("per_placement_tvf", "").lower() == "true"


def placement_functions(
    routines: Iterable[str], stem: str, streams: Iterable[str], placed_streams: Iterable[str]
) -> list[str]:
    """Return the read functions of a stream's placements, identified only by their names.

    Args:
        routines: names of all functions of the database.
        stem: name of the stream's read function if it had no placements.
        streams: these names of the other streams, whose functions may begin with this stream's name.
        placed_streams: those of `streams` that have placements.
    """
    names = {other.lower() for other in streams}
    longer = [other for other in placed_streams if _is_of(other, stem)]
    return sorted(
        name
        for name in routines
        if _is_of(name, stem) and name.lower() not in names
        if not any(_is_of(name, other) for other in longer)
    )


def placed_token(function: str, token: str) -> str:
    """Return the platform's token of a partition of a placement."""
    return f"{function}{_MARK}{token}"


def lists_partitions(token: str) -> bool:
    """Return whether a token stands for a query that lists the partitions of the stream or of a placement."""
    return token == ROOT_TOKEN or token.endswith(_MARK)


def split_token(token: str, stem: str) -> tuple[str, str]:
    """Return the read function of a partition, and the partition's token for that function.

    Args:
        token: the platform's token.
        stem: the read function of the stream if it has no placements.
    """
    function, mark, inner = token.partition(_MARK)
    return (function, inner) if mark and _is_of(function, stem) else (stem, token)


def _is_of(name: str, stem: str) -> bool:
    return name.lower().startswith(f"{stem}_".lower())
