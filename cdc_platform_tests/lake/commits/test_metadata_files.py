"""Metadata files stay as long as readers may need them, and no longer, for any number of commits."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.locations import LocationProvider

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import KEPT_BY_TIME, LOGGED_FILES, LakeSettings
from cdc_platform.lake.commits.metadata_files import delete_old_metadata
from cdc_platform.model.base.stored_names import CUT, LOG, SCHEMA
from cdc_platform.model.base.timestamps import clock_micros

LOGGED: Final = 4
SHORT: Final = {**KEPT_BY_TIME, "write.metadata.previous-versions-max": str(LOGGED)}
ROWS: Final = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with the platform's own tables."""
    return Lake(LakeSettings(str(tmp_path / "lake")), "p")


def make_table(lake: Lake, properties: dict[str, str]) -> Table:
    """Return a new table with three rows."""
    table = lake.catalog.create_table("p.t", ROWS.schema, properties=properties)
    table.append(ROWS)
    return table


def commit(table: Table, times: int) -> Table:
    """Return a table after so many more commits, of which each writes a metadata file and nothing else."""
    for number in range(times):
        with table.transaction() as transaction:
            transaction.set_properties(number=str(number))
    return table


def files_of(table: Table) -> list[Path]:
    """Return the metadata files of a table that are there, oldest first."""
    return sorted(_path(table.metadata_location).parent.glob("*.metadata.json"))


def logged(table: Table) -> list[Path]:
    """Return the newest metadata file of a table, and those that its log names, oldest first."""
    log = [entry.metadata_file for entry in table.metadata.metadata_log]
    return [*map(_path, [*log, table.metadata_location])]


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def now_micros() -> int:
    """Return the present, after the last commit."""
    time.sleep(0.002)
    return clock_micros()


def names(paths: Sequence[Path]) -> list[str]:
    """Return the names of files."""
    return [path.name for path in paths]


def test_a_pinned_reader_can_finish_after_a_hundred_commits(lake: Lake) -> None:
    """A reader that was given a metadata file reads its rows from it, far beyond what the log names."""
    table = make_table(lake, {**KEPT_BY_TIME})
    pinned = table.metadata_location
    commit(table, LOGGED_FILES + 10)
    assert pinned not in {entry.metadata_file for entry in table.metadata.metadata_log}
    an_hour_ago = now_micros() - 3600 * 1_000_000
    assert delete_old_metadata(table, an_hour_ago) == 0
    assert StaticTable.from_metadata(pinned).scan().to_arrow().equals(ROWS)


def next_millisecond() -> int:
    """Wait for the next millisecond, and return it in microseconds: Iceberg's moments are no finer."""
    begin_micros = (now_micros() // 1000 + 1) * 1000
    while now_micros() < begin_micros:
        pass
    return begin_micros


def test_files_that_are_old_and_not_in_the_log_are_deleted(lake: Lake) -> None:
    """The log and time bound the files: those that were replaced before a moment are gone."""
    table = commit(make_table(lake, SHORT), 20)
    before, recent = next_millisecond(), table.metadata_location
    commit(table, 3 * LOGGED)
    there = files_of(table)
    # The newest one of before was replaced afterwards.
    recent_files = there[there.index(_path(recent)) :]
    assert len(there) - len(recent_files) == delete_old_metadata(table, before)
    assert names(recent_files) == names(files_of(table))
    assert delete_old_metadata(table, before) == 0
    assert len(recent_files) - LOGGED - 1 == delete_old_metadata(table, next_millisecond())
    assert names(logged(table)) == names(files_of(table))
    assert len(files_of(table)) == LOGGED + 1


def test_a_deletion_that_was_broken_off_is_finished_by_the_next(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The oldest go first, so that a deletion which fails leaves nothing that is not found again."""
    table = commit(make_table(lake, SHORT), 20)
    delete = table.io.delete
    deleted: list[str] = []

    def fail_later(path: str) -> None:
        if len(deleted) == 5:
            message = "the store is not reached"
            raise OSError(message)
        deleted.append(path)
        delete(path)

    with monkeypatch.context() as patch:
        patch.setattr(table.io, "delete", fail_later)
        assert delete_old_metadata(table, next_millisecond()) == 5
    assert "the store is not reached" in "\n".join(caplog.messages)
    assert names(files_of(table))[0] > max(map(_name, deleted))
    delete_old_metadata(table, next_millisecond())
    assert names(logged(table)) == names(files_of(table))


def test_a_file_that_another_tool_deleted_hides_none_before_it(lake: Lake) -> None:
    """Neither one in the midst of those that are due nor the oldest one in the log ends the search."""
    table = commit(make_table(lake, SHORT), 20)
    files_of(table)[-LOGGED - 4].unlink()
    logged(table)[0].unlink()
    assert len(files_of(table)) - LOGGED == delete_old_metadata(table, next_millisecond())
    assert names(logged(table)[1:]) == names(files_of(table))


def test_compressed_files_are_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tools compress metadata files, as their names show."""
    name = LocationProvider.new_table_metadata_file_location
    monkeypatch.setattr(
        LocationProvider,
        "new_table_metadata_file_location",
        lambda self, version=0: name(self, version).replace(".metadata.json", ".gz.metadata.json"),
    )
    table = commit(make_table(lake, SHORT), 20)
    there = files_of(table)
    assert {".gz.metadata.json"} == {"".join(path.suffixes) for path in there}
    assert len(there) - LOGGED - 1 == delete_old_metadata(table, next_millisecond())


def test_a_damaged_file_hides_none_before_it(lake: Lake) -> None:
    """The files before a truncated one are found through its successors."""
    table = commit(make_table(lake, SHORT), 20)
    damaged = logged(table)[0]
    damaged.write_bytes(damaged.read_bytes()[:100])
    there = files_of(table)
    assert len(there) - LOGGED - 1 == delete_old_metadata(table, next_millisecond())


def _name(path: str) -> str:
    return _path(path).name


def test_the_number_of_files_is_bounded(lake: Lake) -> None:
    """Over many rounds of commits and deletions there are never more than the log and a round have."""
    table = make_table(lake, SHORT)
    for _ in range(12):
        commit(table, LOGGED + 2)
        delete_old_metadata(table, next_millisecond())
        assert len(files_of(table)) == LOGGED + 1


def test_a_file_that_iceberg_has_deleted_ends_the_chain(lake: Lake) -> None:
    """All later ones are found."""
    by_count = {"write.metadata.delete-after-commit.enabled": "true"}
    table = commit(make_table(lake, {**SHORT, **by_count}), 10)
    assert len(files_of(table)) <= LOGGED + 2
    with table.transaction() as transaction:
        transaction.set_properties(SHORT)
    before = len(files_of(table))
    commit(table, 10)
    assert delete_old_metadata(table, now_micros() - 3600 * 1_000_000) == 0
    assert before + 10 == len(files_of(table))
    delete_old_metadata(table, next_millisecond())
    assert names(logged(table)) == names(files_of(table))


def test_own_tables_that_every_cycle_writes_are_kept_by_time(lake: Lake) -> None:
    """Those that maintenance looks after; of the others Iceberg keeps twenty."""
    for name in (CUT, LOG):
        assert KEPT_BY_TIME.items() <= lake.system_table(name).properties.items()
    assert not KEPT_BY_TIME.items() <= lake.system_table(SCHEMA).properties.items()
    with lake.system_table(CUT).transaction() as transaction:
        transaction.set_properties({"write.metadata.delete-after-commit.enabled": "true"})
    opened = Lake(lake.settings, "p")
    assert KEPT_BY_TIME.items() <= opened.system_table(CUT).properties.items()
