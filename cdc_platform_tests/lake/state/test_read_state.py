"""The state of reading is the same however its rows are divided, and however often they are replaced."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.lake.state.read_state import ReadState, former_reads
from cdc_platform.model.base.schemas import READ_PROGRESS_ROWS
from cdc_platform.model.stream.unread import FORGOTTEN, FailedRead, unread_path

Entry = tuple[str, str]
"""A path, and what a cycle read of it."""

reads = st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "2", FORGOTTEN]))
failures = st.builds(
    lambda path, version: (unread_path(path), FailedRead(version, 1, "broken").to_text()),
    st.sampled_from("abc"),
    st.sampled_from("12"),
)
cycles = st.lists(st.lists(reads | failures, max_size=3, unique_by=lambda entry: entry[0][-1]), max_size=8)


def rows_of(cycle: int, entries: list[Entry]) -> pa.Table:
    """Return the rows of a cycle."""
    rows = [{"cycle": cycle, "path": path, "version": version} for path, version in entries]
    return pa.Table.from_pylist(rows, READ_PROGRESS_ROWS)


@given(cycles, st.sets(st.integers(1, 8)))
def test_a_state_continues_from_its_own_rows(entries: list[list[Entry]], replaced: set[int]) -> None:
    """Reads, failures and forgotten files count alike cycle by cycle, all at once, and after replacements."""
    state, stored = ReadState(), READ_PROGRESS_ROWS.empty_table()
    for cycle, of_cycle in enumerate(entries, start=1):
        new = rows_of(cycle, of_cycle)
        state, stored = state.extended(new), pa.concat_tables([stored, new])
        assert state == ReadState().extended(stored)
        if cycle in replaced:
            stored = pa.concat_tables([state.rows(), former_reads(stored, state.rows(), 0)])
            assert len(state.versions) == len(stored) - stored["version"].null_count


@given(cycles)
def test_what_is_shown_of_former_reads_is_when_they_were(entries: list[list[Entry]]) -> None:
    """Each read of the shown cycles stays with its cycle, and none of those before."""
    rows = pa.concat_tables([rows_of(0, []), *(rows_of(cycle, of) for cycle, of in enumerate(entries, 1))])
    state = ReadState().extended(rows)
    former = former_reads(rows, state.rows(), 2)
    shown = pa.concat_tables([state.rows(), former]).select(["cycle", "path"]).to_pylist()
    expected = [
        {"cycle": cycle, "path": path}
        for cycle, of_cycle in enumerate(entries, start=1)
        for path, version in of_cycle
        if cycle > 2 and version != FORGOTTEN
    ]

    def key(row: dict[str, object]) -> tuple[str, str]:
        return str(row["cycle"]), str(row["path"])

    assert sorted(expected, key=key) == sorted((row for row in shown if row["cycle"] > 2), key=key)
    assert former["version"].null_count == len(former)


def test_a_file_that_is_forgotten_leaves_no_entry() -> None:
    """Neither its reads nor its failed read stay."""
    failure = FailedRead("1", 1, "broken").to_text()
    rows = [
        rows_of(1, [("a", "1"), ("b", "1"), (unread_path("c"), failure)]),
        rows_of(2, [("a", FORGOTTEN), ("c", FORGOTTEN)]),
    ]
    state = ReadState().extended(pa.concat_tables(rows))
    assert state == ReadState({"b": "1"}, {"b": 1})
