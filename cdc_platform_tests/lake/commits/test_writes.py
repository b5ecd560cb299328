"""Rows of a cycle that are committed without Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.commits.writes import CycleStep, replace_cycle
from cdc_platform.model.base.schemas import QUARANTINE_ROWS
from cdc_platform.model.base.stored_names import DELETION_MARKERS, QUARANTINE

TABLES = pytest.mark.parametrize("name", [QUARANTINE, DELETION_MARKERS])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake of a source of events."""
    return Lake(LakeSettings(str(tmp_path)), "writes", delivers_events=True)


def rows(table: Table, cycle: int, *names: str) -> pa.Table:
    """Return rows of one cycle, identified by their table's name."""
    actual = [{"cycle": cycle, "table_name": name} for name in names]
    return pa.Table.from_pylist(actual, table.schema().as_arrow())


def names_in(lake: Lake, name: str) -> list[tuple[int, str]]:
    """Return cycle and table name of all rows, sorted."""
    actual = lake.system_table(name).scan(selected_fields=("cycle", "table_name")).to_arrow().to_pylist()
    return sorted((row["cycle"], row["table_name"]) for row in actual)


@TABLES
def test_what_an_interrupted_cycle_has_left_is_replaced(lake: Lake, name: str) -> None:
    """A cycle that is repeated, perhaps under a later number, leaves its rows once; earlier ones stay."""
    for step, tables in ((CycleStep(0, 1), "ab"), (CycleStep(1, 3), "cd"), (CycleStep(1, 4), "de")):
        replace_cycle(rows(lake.system_table(name), step.committed, *tables), lake.system_table(name), step)
    assert names_in(lake, name) == [(1, "a"), (1, "b"), (4, "d"), (4, "e")]
    assert read_mark(lake.system_table(name)).cycle == 4


@TABLES
def test_a_cycle_whose_table_another_run_has_written_to_changes_nothing(lake: Lake, name: str) -> None:
    """Of two runs only the first commits, whether there are rows to replace or not."""
    for step in (CycleStep(0, 1), CycleStep(0, 2)):
        planned_on = lake.system_table(name)
        replace_cycle(rows(planned_on, step.committed, "first"), lake.system_table(name), step)
        with pytest.raises(CommitConflict, match=name):
            replace_cycle(rows(planned_on, step.committed, "second"), planned_on, step)
    assert names_in(lake, name) == [(2, "first")]


def test_texts_of_another_width_are_taken(lake: Lake) -> None:
    """Rows that Spark has collected have the types of the table afterwards."""
    table = lake.system_table(QUARANTINE)
    wide = rows(table, 1, "a").cast(
        pa.schema(
            [
                field.with_type(pa.large_string()) if pa.types.is_string(field.type) else field
                for field in QUARANTINE_ROWS
            ]
        )
    )
    replace_cycle(wide, table, CycleStep(0, 1))
    assert names_in(lake, QUARANTINE) == [(1, "a")]
