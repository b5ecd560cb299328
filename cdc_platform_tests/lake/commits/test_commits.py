"""Marks in snapshot summaries are read back, also after compaction."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import (
    NEXT_ORDINAL,
    POSITION,
    UNMARKED,
    Mark,
    ancestors_of,
    count_rows,
    cycles_between,
    head,
    read_mark,
)
from cdc_platform.model.base.schemas import QUARANTINE_ROWS
from cdc_platform.model.base.stored_names import CYCLE, QUARANTINE


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of the platform's own, without a snapshot."""
    return Lake(LakeSettings(str(tmp_path)), "marks").system_table(QUARANTINE)


def commit(table: Table, **properties: int) -> None:
    """Append a row with entries in the snapshot's summary."""
    row = pa.Table.from_pylist([{"cycle": properties.get("cycle", 0)}], QUARANTINE_ROWS)
    names = {"cycle": CYCLE, "position": POSITION, "ordinal": NEXT_ORDINAL}
    summary = {names[name]: str(value) for name, value in properties.items()}
    table.append(row, snapshot_properties=summary)


def test_a_table_without_a_cycle_is_unmarked(table: Table) -> None:
    """Neither an empty table nor commits of others carry a cycle."""
    assert read_mark(table) == UNMARKED
    assert count_rows(head(table)) == 0
    commit(table)
    assert read_mark(table) == UNMARKED


def test_the_newest_cycle_counts(table: Table) -> None:
    """Commits that no cycle has made, such as compaction, are looked through."""
    commit(table, cycle=1, position=10, ordinal=5)
    commit(table, cycle=4, position=40, ordinal=9)
    commit(table)
    assert read_mark(table) == Mark(cycle=4, position_micros=40, next_ordinal=9)
    assert count_rows(head(table)) == 3


def test_a_missing_branch_has_no_head(table: Table) -> None:
    """A branch that was never created carries nothing."""
    commit(table, cycle=1)
    assert head(table, "cycle") is None
    assert read_mark(table, "cycle") == UNMARKED


def test_cycles_between_are_newest_first(table: Table) -> None:
    """The lower bound is exclusive, the upper one inclusive, and unmarked snapshots do not count."""
    for cycle in (1, 2, 4):
        commit(table, cycle=cycle)
    commit(table)
    summaries = [snapshot.summary for snapshot in cycles_between(table, 1, 4)]
    assert [summary.additional_properties[CYCLE] for summary in summaries if summary is not None] == [
        "4",
        "2",
    ]
    assert len(list(ancestors_of(table, head(table)))) == 4
