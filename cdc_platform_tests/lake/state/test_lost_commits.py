"""A commit whose files are gone is taken back where nothing builds on it, and is damage elsewhere."""

import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from cdc_platform.errors import LakeDamaged
from cdc_platform.lake.catalog.files import LakeFile
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.branches import move_branch
from cdc_platform.lake.commits.commits import BRANCH, MAIN, head, read_mark
from cdc_platform.lake.state.control import load_lineage, save_lineage
from cdc_platform.lake.state.cuts import Cut, append_cut, list_cuts
from cdc_platform.lake.state.lost_commits import revert_lost_commits
from cdc_platform.model.base.schemas import (
    CHANGE_LOG,
    DELETION_MARKER_ROWS,
    QUARANTINE_ROWS,
    RAW_CHANGE_RECORDS,
)
from cdc_platform.model.base.stored_names import CUT, CYCLE, DELETION_MARKERS, LINEAGE, LOG, QUARANTINE, RAW
from cdc_platform.model.stream.lineage import begin


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
    """The table is at the cycle before, as if the lost one had never been, and takes it again."""
    for cycle in range(1, cycles + 1):
        table = commit(lake, RAW, RAW_CHANGE_RECORDS, cycle)
    lose(table)
    assert revert_lost_commits(lake) == (f"p__cdc.{RAW}",)
    table = lake.system_table(RAW)
    assert read_mark(table).cycle == cycles - 1
    assert len(table.metadata.snapshots) == cycles - 1
    assert revert_lost_commits(lake) == ()
    table = commit(lake, RAW, RAW_CHANGE_RECORDS, cycles)
    assert table.scan().to_arrow()["cycle"].to_pylist() == [*range(cycles, 0, -1)]


def test_a_lost_replacement_of_all_rows_goes_back_to_the_rows_before(lake: Lake) -> None:
    """A lineage is never seen without rows, as between the deletion of the old ones and the new ones."""
    lineages = [replace(begin(start_micros), cycle=start_micros) for start_micros in (1, 2)]
    for lineage in lineages:
        save_lineage(lake, lineage)
    lose(lake.system_table(LINEAGE))
    assert revert_lost_commits(lake) == (f"p__cdc.{LINEAGE}",)
    assert load_lineage(lake) == lineages[0]
    save_lineage(lake, lineages[1])
    assert load_lineage(lake) == lineages[1]


@pytest.mark.parametrize(
    ("has_moved", "is_new"),
    [
        (False, True),
        (True, False),
        # Nobody knows where a table was that no cut before has named.
        (True, True),
    ],
)
def test_a_lost_cut_is_published_again(lake: Lake, has_moved: bool, is_new: bool) -> None:
    """It is taken back, and tables that have moved to it go back to where the cut before has them."""
    table = lake.catalog.create_table("p.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}), snapshot_properties={CYCLE: "1"})
    before = head(table)
    assert before is not None
    append_cut(lake, Cut(1, 5, 1, {} if is_new else {"t": before.snapshot_id}, 6))
    append_cut(lake, Cut(2, 7, 2, {}, 8))
    if has_moved:
        table.append(pa.table({"id": [2]}), snapshot_properties={CYCLE: "2"})
    lose(lake.system_table(CUT))
    if has_moved and is_new:
        assert revert_lost_commits(lake) == ()
        return
    assert revert_lost_commits(lake) == (f"p__cdc.{CUT}",)
    assert before == head(table.refresh())
    assert [cut.cut for cut in list_cuts(lake)] == [1]
    append_cut(lake, Cut(2, 7, 2, {}, 9))


@pytest.mark.parametrize("name", [QUARANTINE, DELETION_MARKERS])
def test_what_went_with_a_cycle_of_the_log_is_damage(lake: Lake, name: str) -> None:
    """Nothing makes quarantine and deletion markers of a cycle again once the log has the cycle."""
    lake = replace(lake, delivers_events=True)
    schema = QUARANTINE_ROWS if name == QUARANTINE else DELETION_MARKER_ROWS
    commit(lake, LOG, CHANGE_LOG, 1)
    for cycle, expected in ((2, (f"p__cdc.{name}",)), (1, ())):
        lose(commit(lake, name, schema, cycle))
        assert expected == revert_lost_commits(lake)


def test_snapshots_that_cuts_and_tags_name_stay(lake: Lake) -> None:
    """Neither the version of an older cut, nor one that a tag pins, nor somebody else's is taken back.

    Names of the platform's own tables are names like others.
    """
    rows = pa.table({"id": [1]})
    for name in (LINEAGE, "pinned", "foreign"):
        table = lake.catalog.create_table(f"p.{name}", rows.schema)
        for cycle in (1, 2):
            table.append(rows, snapshot_properties={} if name == "foreign" else {CYCLE: str(cycle)})
        newest = head(table)
        assert newest is not None
        if name == LINEAGE:
            append_cut(lake, Cut(1, 5, 1, {name: newest.snapshot_id}, 6))
            append_cut(lake, Cut(2, 7, 2, {}, 8))
        if name == "pinned":
            table.manage_snapshots().create_tag(newest.snapshot_id, "kept").commit()
        lose(table)
    assert revert_lost_commits(lake) == ()


def test_what_a_later_step_has_used_is_damage(lake: Lake) -> None:
    """Records that are in the log are not read again: the missing file is named."""
    raw = commit(lake, RAW, RAW_CHANGE_RECORDS, 1)
    commit(lake, LOG, CHANGE_LOG, 1)
    lose(raw)
    assert revert_lost_commits(lake) == ()
    with pytest.raises(LakeDamaged, match=r"raw_change_records/metadata/snap-.*no longer exists"):
        lake.system_table(RAW).scan().to_arrow()


def publish(lake: Lake, name: str, cycle: int) -> Table:
    """Commit a row to a table, publish it as the only one of a cut, and return the table."""
    rows = pa.table({"id": [1]})
    table = lake.catalog.create_table_if_not_exists(f"p.{name}", rows.schema)
    table.append(rows, snapshot_properties={CYCLE: str(cycle)})
    newest = head(table)
    assert newest is not None
    append_cut(lake, Cut(cycle, cycle, cycle, {name: newest.snapshot_id}, cycle))
    return table


def compact(table: Table) -> None:
    """Commit what the table has again, as a compaction does."""
    newest = table.refresh().current_snapshot()
    assert newest is not None
    place = f"{newest.manifest_list}-again"
    shutil.copy(urlsplit(newest.manifest_list).path, urlsplit(place).path)
    compacted = newest.model_copy(
        update={
            "snapshot_id": newest.snapshot_id + 1,
            "parent_snapshot_id": newest.snapshot_id,
            "sequence_number": table.metadata.next_sequence_number(),
            "manifest_list": place,
            "summary": Summary(Operation.REPLACE),
        }
    )
    moved = {"snapshot-id": compacted.snapshot_id, "ref-name": MAIN, "type": "branch"}
    updates = AddSnapshotUpdate(snapshot=compacted), SetSnapshotRefUpdate.model_validate(moved)
    table.catalog.commit_table(table, (), updates)


def test_a_lost_compaction_is_taken_back(lake: Lake) -> None:
    """A lost commit holds data that the log has, even if more was read since; no other table is moved."""
    commit(lake, RAW, RAW_CHANGE_RECORDS, 1)
    commit(lake, LOG, CHANGE_LOG, 1)
    publish(lake, "retired", 1)
    table = publish(lake, "t", 2)
    compact(table)
    newest = head(table.refresh())
    own = RAW, LOG, CUT
    for name in own:
        compact(lake.system_table(name))
        lose(lake.system_table(name))
    assert {f"p__cdc.{name}" for name in own} == {*revert_lost_commits(lake)}
    assert [cut.cut for cut in list_cuts(lake)] == [1, 2]
    assert newest == head(table.refresh())


def test_a_staging_branch_uses_no_lost_compaction(lake: Lake) -> None:
    """An attempt that could not read the compacted files leaves its branch there if its process dies."""
    table = publish(lake, "t", 1)
    published = head(table)
    compact(table)
    newest = head(table.refresh())
    assert newest is not None
    table.manage_snapshots().create_branch(newest.snapshot_id, f"staging-0-{'0' * 32}").commit()
    lose(table.refresh())
    assert revert_lost_commits(lake) == ("p.t",)
    assert published == head(table.refresh())


def test_files_of_what_the_newest_cut_names_are_not_looked_for(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a thousand tables that a start finds, only those with a commit after their cut cost a look."""
    publish(lake, "former", 1)
    publish(lake, "published", 2)
    looked_for = list[str]()
    exists = LakeFile.exists

    def note(file: LakeFile) -> bool:
        looked_for.append(file.location)
        return exists(file)

    monkeypatch.setattr(LakeFile, "exists", note)
    assert revert_lost_commits(lake) == ()
    assert any("/p/former/" in location for location in looked_for)
    assert not any("/p/published/" in location for location in looked_for)


def test_a_lost_cut_hides_no_other_lost_commit(lake: Lake) -> None:
    """If the newest cut cannot be read, the files of every commit are checked."""
    table = publish(lake, "t", 1)
    table.append(pa.table({"id": [2]}), snapshot_properties={CYCLE: "2"})
    append_cut(lake, Cut(2, 7, 3, {}, 8))
    commit(lake, RAW, RAW_CHANGE_RECORDS, 2)
    for lost in (lake.system_table(CUT), lake.system_table(RAW), table):
        lose(lost)
    assert {f"p__cdc.{CUT}", f"p__cdc.{RAW}", "p.t"} == {*revert_lost_commits(lake)}
    assert table.refresh().scan().to_arrow()["id"].to_pylist() == [1]


def publish_next(lake: Lake, table: Table, cut: int) -> tuple[Snapshot, Snapshot]:
    """Publish a cut as a cycle does, on a branch first; return the table's snapshots before and after."""
    before = head(table)
    assert before is not None
    move_branch(table, BRANCH, before.snapshot_id)
    table.refresh().append(pa.table({"id": [cut]}), snapshot_properties={CYCLE: str(cut)}, branch=BRANCH)
    after = head(table.refresh(), BRANCH)
    assert after is not None
    append_cut(lake, Cut(cut, 7, cut, {"t": after.snapshot_id}, 8))
    move_branch(table, MAIN, after.snapshot_id)
    return before, after


def test_a_published_cut_that_is_lost_with_its_commit_is_made_again(lake: Lake) -> None:
    """Both branches of the table end where they did before, as if the run had ended before its merge."""
    table = publish(lake, "t", 1)
    former, _ = publish_next(lake, table, 2)
    for lost in (lake.system_table(CUT), table.refresh()):
        lose(lost)
    assert {f"p__cdc.{CUT}", "p.t"} == {*revert_lost_commits(lake)}
    assert [former, former] == [head(table.refresh(), branch) for branch in (MAIN, BRANCH)]
    assert table.scan().to_arrow()["id"].to_pylist() == [1]


def test_a_first_cut_that_is_lost_is_made_again(lake: Lake) -> None:
    """A table that no cut has named ends as it began, and its branch keeps what the next cut publishes."""
    table = lake.catalog.create_table("p.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": pa.array([], pa.int64())}))
    began, merged = publish_next(lake, table, 1)
    lose(lake.system_table(CUT))
    assert revert_lost_commits(lake) == (f"p__cdc.{CUT}",)
    assert [began, merged] == [head(table.refresh(), branch) for branch in (MAIN, BRANCH)]
    assert not list_cuts(lake)


def test_a_first_cut_of_a_table_without_a_beginning_is_damage(lake: Lake) -> None:
    """Only the cut says which commits were published: its file is named, and what a restore needs."""
    table = publish(lake, "t", 1)
    for lost in (lake.system_table(CUT), table):
        lose(lost)
    with pytest.raises(LakeDamaged, match=r"cuts/metadata/snap-.*catalog that is not newer"):
        revert_lost_commits(lake)
