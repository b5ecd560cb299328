"""Rows that changes of keys connect are found from any of them."""

from cdc_platform.model.rows.connected_rows import key_chains_of
from cdc_platform.model.rows.resolution import RowId


def row(key: int) -> RowId:
    """Return a row of a table."""
    return "public.items", str(key)


def test_a_chain_is_found_whole() -> None:
    """Whichever way a key moved, the rows before and after it belong together; others do not."""
    links = [(row(2), row(1)), (row(3), row(2)), (row(9), row(8))]
    for start in (1, 2, 3):
        assert {row(1), row(2), row(3)} == key_chains_of({row(start)}, links).keys()
    assert {row(5)} == key_chains_of({row(5)}, links).keys()


def test_a_ring_ends() -> None:
    """A swap of keys connects two rows with each other."""
    assert {row(1), row(2)} == key_chains_of({row(1)}, [(row(1), row(2)), (row(2), row(1))]).keys()
