"""Rows that tasks write to files, and that another process commits."""

import pickle
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.catalog.sql_catalog import LakeSqlCatalog
from cdc_platform.lake.commits import data_files
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.commits.data_files import DATA_FILES, DataFileWriter, data_file_writer, data_files_of
from cdc_platform.lake.commits.writes import CycleStep, append_files, replace_cycle
from cdc_platform.model.base.stored_names import QUARANTINE

FIRST: Final = CycleStep(0, 1)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """The quarantine of a new lake."""
    return Lake(LakeSettings(str(tmp_path)), "p").system_table(QUARANTINE)


def batch(table: Table, *records: str) -> pa.RecordBatch:
    """Return rows of the first cycle with these records."""
    rows = [{"cycle": 1, "record": record} for record in records]
    (rows_batch,) = pa.Table.from_pylist(rows, table.schema().as_arrow()).to_batches()
    return rows_batch


def written_by_a_task(table: Table, *batches: pa.RecordBatch) -> pa.Table:
    """Return what a task yields, which has the writer by its octets."""
    writer: DataFileWriter = pickle.loads(pickle.dumps(DataFileWriter.of(table)))  # noqa: S301  just written
    return pa.Table.from_batches(writer(batches), DATA_FILES)


def test_a_commit_adds_the_rows_of_files(table: Table) -> None:
    """They become visible together, as a cycle with its facts."""
    files = [
        *data_files_of(written_by_a_task(table, batch(table, "a", "b"))),
        *data_files_of(written_by_a_task(table, batch(table, "c"))),
    ]
    assert len(table.scan().to_arrow()) == 0
    append_files(files, table, FIRST, {})
    assert sorted(table.scan().to_arrow()["record"].to_pylist()) == ["a", "b", "c"]
    assert read_mark(table).cycle == 1


def test_a_task_writes_one_file(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a row group for each part of the rows that the task has had in memory."""
    monkeypatch.setattr(data_files, "GROUP_BYTES", 1)
    (file,) = data_files_of(written_by_a_task(table, batch(table, "a"), batch(table, "b", "c")))
    with table.io.new_input(file.file_path).open() as stream:
        groups = pq.ParquetFile(stream).metadata
        assert [groups.row_group(number).num_rows for number in range(groups.num_row_groups)] == [1, 2]


@pytest.mark.parametrize("batch_rows", [1, 1_500])
def test_a_row_group_has_the_rows_of_several_batches(table: Table, batch_rows: int) -> None:
    """The batches become one if they are small, and the file is the same in either case."""
    records = [str(number) for number in range(3 * batch_rows)]
    parts = [records[begin : begin + batch_rows] for begin in range(0, len(records), batch_rows)]
    (file,) = DataFileWriter.of(table).write(batch(table, *part) for part in parts)
    with table.io.new_input(file.file_path).open() as stream:
        parquet = pq.ParquetFile(stream)
        assert parquet.num_row_groups == 1
        assert records == parquet.read()["record"].to_pylist()


def test_a_task_that_fails_leaves_no_file(
    table: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A disk that is full would stay so with each attempt."""
    monkeypatch.setattr(data_files, "GROUP_BYTES", 1)

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(table, "a")
        assert [*tmp_path.rglob("*.parquet")]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(DataFileWriter.of(table).write(batches()))
    assert [*tmp_path.rglob("*.parquet")] == []


def test_the_files_of_all_tasks_go_if_one_task_fails(table: Table, tmp_path: Path) -> None:
    """Those of another attempt stay."""
    (kept,) = DataFileWriter.of(table).write([batch(table, "a")])

    def fail() -> None:
        with data_file_writer(table) as writer:
            for _ in range(2):
                list(writer.write([batch(table, "b")]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [path.as_uri() for path in tmp_path.rglob("*.parquet")] == [kept.file_path]


def test_without_rows_there_is_no_file(table: Table) -> None:
    """Spark's tasks may have nothing to read."""
    assert len(written_by_a_task(table)) == 0
    assert len(written_by_a_task(table, batch(table, "a").slice(1))) == 0


def test_of_two_runs_one_commits_its_files(table: Table, tmp_path: Path) -> None:
    """The files of the other one go: the catalog has refused them, and no metadata name them."""
    other = Lake(LakeSettings(str(tmp_path)), "p").system_table(QUARANTINE)
    first, second = (data_files_of(written_by_a_task(each, batch(each, "a"))) for each in (table, other))
    append_files(first, table, FIRST, {})
    with pytest.raises(CommitConflict, match="another run has committed"):
        append_files(second, other, FIRST, {})
    assert len(table.refresh().scan().to_arrow()) == 1
    assert [path.as_uri() for path in tmp_path.rglob("*.parquet")] == [first[0].file_path]


def test_the_files_of_replaced_rows_go_if_another_run_is_first(table: Table, tmp_path: Path) -> None:
    """So do those that keep the other rows of a file, while the file itself stays."""
    append_files(data_files_of(written_by_a_task(table, batch(table, "a"))), table, FIRST, {})
    rows, other = pa.Table.from_batches([batch(table, "b")]), table.catalog.load_table(table.name())
    replace_cycle(rows, table, CycleStep(0, 2))
    kept = {*tmp_path.rglob("*.parquet")}
    with pytest.raises(CommitConflict, match="another run has committed"):
        replace_cycle(rows, other, CycleStep(0, 2))
    assert {*tmp_path.rglob("*.parquet")} == kept
    assert table.refresh().scan().to_arrow()["record"].to_pylist() == ["b"]


def test_the_files_of_a_commit_with_an_unknown_outcome_stay(table: Table, tmp_path: Path) -> None:
    """The catalog may have made it."""
    files = data_files_of(written_by_a_task(table, batch(table, "a")))

    def lose_connection(_connection: Connection) -> None:
        raise OperationalError("COMMIT", None, sqlite3.OperationalError("disk I/O error"))

    engine = cast("LakeSqlCatalog", table.catalog).engine
    event.listen(engine, "commit", lose_connection)
    with pytest.raises(OperationalError):
        append_files(files, table, FIRST, {})
    event.remove(engine, "commit", lose_connection)
    assert [path.as_uri() for path in tmp_path.rglob("*.parquet")] == [files[0].file_path]


def test_a_writer_stays_small(table: Table) -> None:
    """Each task gets it, so it lacks the snapshots of the table."""
    sizes = []
    for _ in range(5):
        table.append(table.schema().as_arrow().empty_table())
        loaded = table.catalog.load_table(table.name())
        sizes.append(len(pickle.dumps(DataFileWriter.of(loaded))))
    assert {sizes[0]} == {*sizes}
