"""Turns: a few of many items at a time, so that each gets its turn and their number slows nothing."""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def choose_by_turns(items: Sequence[Item], limit: int, turn: int) -> Sequence[Item]:
    """Return at most `limit` of the items; over several turns, every item is chosen equally often."""
    turns = -(-len(items) // limit)
    return items[turn % turns :: turns] if turns > 1 else items
