"""Of many things, some have their turn at a time."""

from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.base.turns import choose_by_turns


@given(st.integers(0, 300), st.integers(1, 60), st.integers(0, 10**6))
def test_each_item_has_its_turn_once_in_a_round(number: int, limit: int, turn: int) -> None:
    """In as many turns as are needed every item is chosen once, and never more than are allowed at a time."""
    items = range(number)
    turns = max(1, -(-number // limit))
    chosen = [choose_by_turns(items, limit, turn + later) for later in range(turns)]
    assert limit >= max(map(len, chosen))
    assert [*items] == sorted(item for part in chosen for item in part)
