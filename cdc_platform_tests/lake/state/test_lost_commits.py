"""A commit whose files are gone is taken back where nothing builds upon it, and is damage elsewhere."""

from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from cdc_platform.errors import LakeDamaged
from cdc_platform.lake.catalog.lake import CUT, LOG, RAW, Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import CYCLE, head, read_mark
from cdc_platform.lake.state.cuts import Cut, append_cut, list_cuts
from cdc_platform.lake.state.lost_commits import take_back_lost
from cdc_platform.model.base.schemas import CHANGE_LOG, RAW_CHANGE_RECORDS


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake of a pipeline that has read nothing yet."""
    return Lake(LakeSettings(str(tmp_path)), "p")


def commit(lake: Lake, name: str, schema: pa.Schema, cycle: int) -> Table:
    """Commit a row as a cycle, and return the table."""
    row = pa.Table.from_pylist([{"cycle": cycle}], schema)
    lake.system_table(name).append(row, snapshot_properties={CYCLE: str(cycle)})
    return lake.system_table(name)


def lose(table: Table) -> None:
    """Delete what Iceberg deletes of a commit that it takes for refused."""
    newest = head(table)
    assert newest is not None
    Path(urlsplit(newest.manifest_list).path).unlink()


@pytest.mark.parametrize("cycles", [1, 2])
def test_a_lost_commit_is_made_again(lake: Lake, cycles: int) -> None:
    """The table is at the cycle before, as if the lost one had never been, and takes it anew."""
    for cycle in range(1, cycles + 1):
        table = commit(lake, RAW, RAW_CHANGE_RECORDS, cycle)
    lose(table)
    assert take_back_lost(lake) == (f"p__cdc.{RAW}",)
    table = lake.system_table(RAW)
    assert read_mark(table).cycle == cycles - 1
    assert len(table.metadata.snapshots) == cycles - 1
    assert take_back_lost(lake) == ()
    table = commit(lake, RAW, RAW_CHANGE_RECORDS, cycles)
    assert table.scan().to_arrow()["cycle"].to_pylist() == [*range(cycles, 0, -1)]


@pytest.mark.parametrize("has_moved", [False, True])
def test_a_lost_cut_is_published_again(lake: Lake, has_moved: bool) -> None:
    """It is taken back as long as no table has moved to it, since nothing else says what it held."""
    append_cut(lake, Cut(1, 5, 1, {}, 6))
    append_cut(lake, Cut(2, 7, 2, {}, 8))
    table = lake.catalog.create_table("p.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}), snapshot_properties={CYCLE: "2" if has_moved else "1"})
    lose(lake.system_table(CUT))
    assert take_back_lost(lake) == (() if has_moved else (f"p__cdc.{CUT}",))
    if not has_moved:
        assert [cut.cut for cut in list_cuts(lake)] == [1]
        append_cut(lake, Cut(2, 7, 2, {}, 9))


def test_what_a_later_step_has_used_is_damage(lake: Lake) -> None:
    """Records that are in the log are not read again: the missing file is named."""
    raw = commit(lake, RAW, RAW_CHANGE_RECORDS, 1)
    commit(lake, LOG, CHANGE_LOG, 1)
    lose(raw)
    assert take_back_lost(lake) == ()
    with pytest.raises(LakeDamaged, match=r"raw_change_records/metadata/snap-.*is not there any more"):
        lake.system_table(RAW).scan().to_arrow()
