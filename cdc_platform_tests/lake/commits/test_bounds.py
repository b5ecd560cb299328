"""Columns that are true in all rows of a table, as its manifests say."""

import gc
from pathlib import Path
from weakref import ref

import pyarrow as pa

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.bounds import is_true_throughout
from cdc_platform.lake.commits.writes import CycleStep, append_cycle
from cdc_platform.model.base.stored_names import LOG


def test_one_false_value_is_enough(tmp_path: Path) -> None:
    """A later file that has one counts, until its rows are gone; so does a file without bounds."""
    lake, expected = Lake(LakeSettings(str(tmp_path)), "bounds", delivers_events=True), [True]
    for cycle, is_whole in enumerate(([True, True], [True], [False, True], [True]), start=1):
        log = lake.system_table(LOG)
        schema = log.schema().as_arrow()
        rows = [
            {field.name: None for field in schema} | {"cycle": cycle, "is_whole_row": value}
            for value in is_whole
        ]
        assert is_true_throughout(log, "is_whole_row") is expected[-1]
        append_cycle(pa.Table.from_pylist(rows, schema), log, CycleStep(cycle - 1, cycle), {})
        expected.append(expected[-1] and all(is_whole))
    log = lake.system_table(LOG)
    assert not is_true_throughout(log, "is_whole_row")
    # No file states bounds of a column that has only NULLs.
    assert not is_true_throughout(log, "is_system_transaction")
    log.delete("cycle = 3")
    assert is_true_throughout(lake.system_table(LOG), "is_whole_row")


def test_no_access_to_the_storage_is_kept(tmp_path: Path) -> None:
    """Each version of a table comes with a client of its storage, which goes with it."""
    lake = Lake(LakeSettings(str(tmp_path)), "bounds", delivers_events=True)
    schema, clients = lake.system_table(LOG).schema().as_arrow(), []
    for cycle in range(1, 5):
        log = lake.system_table(LOG)
        assert is_true_throughout(log, "is_whole_row")
        clients.append(ref(log.io))
        row = {field.name: None for field in schema} | {"cycle": cycle, "is_whole_row": True}
        append_cycle(pa.Table.from_pylist([row], schema), log, CycleStep(cycle - 1, cycle), {})
    # The catalog has the newest version.
    del log
    lake.system_table(LOG)
    gc.collect()
    assert [client() for client in clients] == [None] * 4
