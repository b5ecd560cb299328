"""Rows that changes of keys connect are found from any of them."""

from cdc_platform.model.rows.connected_rows import connected
from cdc_platform.model.rows.resolution import RowId


def row(key: int) -> RowId:
    """Return a row of a table."""
    return "public.items", str(key)


def test_a_chain_is_found_whole() -> None:
    """Whichever way a key moved, the rows before and after it belong together; others do not."""
    links = [(row(2), row(1)), (row(3), row(2)), (row(9), row(8))]
    for start in (1, 2, 3):
        assert {row(1), row(2), row(3)} == connected({row(start)}, links)
    assert {row(5)} == connected({row(5)}, links)


def test_a_ring_ends() -> None:
    """A swap of keys connects two rows with each other."""
    assert {row(1), row(2)} == connected({row(1)}, [(row(1), row(2)), (row(2), row(1))])
