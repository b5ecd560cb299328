"""Plans of copies, and what a branch says of them; no Spark is needed."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict, LakeDamaged
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import head
from cdc_platform.lake.state.copies import (
    COPY,
    COPY_BRANCH,
    ChunkBatch,
    CopyPlan,
    load_copy_progress,
    load_plans,
    save_plans,
)
from cdc_platform.lake.state.copy_columns import replace_columns
from cdc_platform.model.base.schemas import FORMAT_VERSION
from cdc_platform_tests.example_tables import table as table_of
from cdc_platform_tests.support.scans import watch_scans

PLAN = CopyPlan("accounts", 1, 1_000_000, 2_000_000, "{}", ("a", "b", "c", "d"))
ROWS = pa.table({"id": pa.array([1], pa.int64())})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake."""
    return Lake(LakeSettings(str(tmp_path)), "bank")


@pytest.fixture
def table(lake: Lake) -> Table:
    """A table with an empty snapshot, from which its branch begins."""
    created = lake.catalog.create_table("bank.accounts", ROWS.schema)
    created.append(ROWS.slice(0, 0))
    begin_branch(created)
    return created


def begin_branch(table: Table) -> None:
    """Point the branch at the empty snapshot, as a new plan does."""
    root = head(table)
    assert root is not None
    with table.manage_snapshots() as manage:
        manage.create_branch(root.snapshot_id, COPY_BRANCH)


def newest(table: Table) -> int:
    """Return the snapshot at the end of the branch."""
    snapshot = head(table, COPY_BRANCH)
    assert snapshot is not None
    return snapshot.snapshot_id


def commit(table: Table, base: int, *done: int, number: int = 1) -> None:
    """Commit a row as the chunk batch that completes these chunks."""
    schema_id = table.metadata.current_schema_id
    chunk_batch = ChunkBatch(number, base, frozenset(done), 1, 0, schema_id)
    table.append(ROWS, snapshot_properties={COPY: chunk_batch.to_text()}, branch=COPY_BRANCH)


def test_a_plan_is_kept(lake: Lake) -> None:
    """The newest plan of a table comes back as it was; older ones stay as a record."""
    assert load_plans(lake) == {}
    save_plans(lake, [PLAN, CopyPlan("transfers", 1, 1, 2, "{}", ())])
    restarted = CopyPlan("accounts", 2, 5_000_000, 6_000_000, "{}", ("x",))
    save_plans(lake, [restarted])
    assert load_plans(lake) == {"accounts": restarted, "transfers": CopyPlan("transfers", 1, 1, 2, "{}", ())}
    assert FORMAT_VERSION == 1, "a lake of the first format has no copies, and gets the table when opened"


def test_plans_are_read_once_for_all_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand tables that wait for their copies each asks for its plan, and new plans are seen at once.

    Another process may have committed them, and another lake has its own.
    """
    settings, others = LakeSettings(str(tmp_path / "a")), LakeSettings(str(tmp_path / "b"))
    lake, other = Lake(settings, "bank"), Lake(others, "bank")
    save_plans(lake, [PLAN])
    scans = watch_scans(monkeypatch)
    assert [load_plans(lake) for _ in range(5)] == [{"accounts": PLAN}] * 5
    assert len(scans) == 1
    assert load_plans(other) == {}

    restarted = replace(PLAN, number=2, chunks=("x",))
    save_plans(Lake(settings, "bank"), [restarted])
    save_plans(other, [replace(PLAN, columns="[]")])
    assert {"accounts": restarted} == load_plans(lake)
    assert {"accounts": replace(PLAN, columns="[]")} == load_plans(other)


def test_of_two_planners_one_counts(lake: Lake) -> None:
    """A plan that is not newer than what is known conflicts."""
    save_plans(lake, [PLAN])
    with pytest.raises(CommitConflict, match="planned the same initial copies"):
        save_plans(lake, [PLAN])


def test_a_chunk_batch_is_as_short_as_its_ranges() -> None:
    """Thousands of chunks that are done fit into a summary."""
    done = frozenset(range(10_000)) - {5}
    text = ChunkBatch(1, 2, done, 3, 4).to_text()
    assert '"done": [[0, 4], [6, 9999]]' in text
    assert len(text) < 110


def test_progress_is_what_the_newest_commit_says(lake: Lake, table: Table) -> None:
    """Rows and chunks come from the branch alone."""
    assert not load_copy_progress(None, PLAN).is_complete
    assert (load_copy_progress(table, PLAN).missing, load_copy_progress(table, PLAN).is_mixed) == (
        (0, 1, 2, 3),
        False,
    )
    commit(table, newest(table), 0, 1)
    commit(table, newest(table), 0, 1, 3)
    progress = load_copy_progress(table, PLAN)
    assert (progress.missing, progress.rows, progress.is_mixed) == ((2,), 2, False)
    commit(table, newest(table), 0, 1, 2, 3)
    assert load_copy_progress(lake.table("accounts"), PLAN).is_complete


def test_a_commit_upon_another_runs_does_not_count(table: Table) -> None:
    """Of two chunk batches that were planned on one and the same commit, only the first counts."""
    first = newest(table)
    commit(table, first, 0)
    commit(table, first, 0)
    progress = load_copy_progress(table, PLAN)
    assert (progress.missing, progress.rows, progress.is_mixed) == ((1, 2, 3), 1, True)


def test_an_earlier_plan_does_not_count(table: Table) -> None:
    """When a copy starts over, what the last one has left on the branch is nothing."""
    commit(table, newest(table), 0, 1, 2, 3, number=1)
    restarted = CopyPlan("accounts", 2, 5_000_000, 6_000_000, "{}", ("x",))
    progress = load_copy_progress(table, restarted)
    assert (progress.missing, progress.rows, progress.head, progress.is_mixed) == ((0,), 0, None, True)


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "{}", "[" * 100_000),
        '{"number": 1, "base": 2, "done": [[0, 1000000000000]], "own": 1, "begun_micros": 0}',
        '{"number": 1, "base": 2, "done": [[4, 1]], "own": 1, "begun_micros": 0}',
        '{"number": 1, "base": 2, "done": [[0, 900000], [0, 900000]], "own": 1, "begun_micros": 0}',
        '{"number": "1", "base": 2, "done": [], "own": 1, "begun_micros": 0}',
    ],
)
def test_a_damaged_chunk_batch_names_its_snapshot(table: Table, text: str) -> None:
    """A plan that no run can have written is damage to the table, and never costs memory."""
    table.append(ROWS, snapshot_properties={COPY: text}, branch=COPY_BRANCH)
    with pytest.raises(LakeDamaged, match=r"its table `accounts`, snapshot \d+, entry `cdc\.copy`"):
        load_copy_progress(table, PLAN)


def test_a_commit_planned_before_the_columns_were_replaced_does_not_count(lake: Lake, table: Table) -> None:
    """The branch may be where it was, but readers would find NULLs instead of the values of the files."""
    text = ChunkBatch(1, newest(table), frozenset(range(4)), 4, 0, table.metadata.current_schema_id).to_text()
    replace_columns(table, table_of("accounts", {"id": "INT64"}, {}))
    late = table.refresh()
    late.append(ROWS, snapshot_properties={COPY: text}, branch=COPY_BRANCH)
    progress = load_copy_progress(lake.table("accounts"), PLAN)
    assert (progress.missing, progress.is_mixed) == ((0, 1, 2, 3), True)
