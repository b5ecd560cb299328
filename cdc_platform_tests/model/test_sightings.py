"""Which records tell all that a tick has to say of a table's columns."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.sightings import SeenColumn, Sighting, keep_ends
from cdc_platform.model.table_schema import ColumnType

INT64 = ColumnType("INT64")


def sighting(micros: int, width: int) -> Sighting:
    """Return a whole row with so many columns."""
    columns = {f"c{number}": SeenColumn(INT64, number == 0, number + 1) for number in range(width)}
    return Sighting(micros, columns, is_whole=True, is_sure=True)


@given(st.lists(st.integers(1, 3)))
def test_the_ends_of_each_run_stay(widths: list[int]) -> None:
    """Of neighbours that look alike the first and the last stay: what came just before a change."""
    ends: list[Sighting] = []
    for micros, width in enumerate(widths):
        keep_ends(ends, sighting(micros, width))
    runs = [[micros for micros, _ in run] for _, run in groupby(enumerate(widths), key=lambda pair: pair[1])]
    assert [micros for run in runs for micros in sorted({run[0], run[-1]})] == [end.micros for end in ends]
