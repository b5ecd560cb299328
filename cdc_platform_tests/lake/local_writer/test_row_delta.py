"""Rows that are replaced without Spark: Spark reads them, continues with them, and finds no difference."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import BRANCH, MAIN, count_rows, fact, head
from cdc_platform.lake.commits.maintenance import compact_all_files, expire_snapshots
from cdc_platform.lake.local_writer import row_delta
from cdc_platform.lake.local_writer.key_lookup import find_rows
from cdc_platform.lake.local_writer.local_table import commit_first
from cdc_platform.lake.local_writer.manifests import number_manifests
from cdc_platform.lake.local_writer.metadata import Version3Metadata
from cdc_platform.lake.local_writer.row_delta import RowDelta, commit_row_delta
from cdc_platform.lake.local_writer.table_files import read_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

NAMESPACE: Final = "row_delta"
ROWS: Final = 1000


class Subject:
    """A table that Spark has made, with two files of rows `(id, v)` or another number of them."""

    def __init__(
        self, spark: "SparkSession", lake: LakeSettings, name: str, version: int = 3, files: int = 2
    ) -> None:
        self.spark, self.lake, self.path = spark, Lake(lake, NAMESPACE), f"{NAMESPACE}.{name}"
        self.sql_name = f"lake.{self.path}"
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{NAMESPACE}")
        properties = ", ".join(
            [f"'format-version'='{version}'", *(f"'write.{kind}.mode'='merge-on-read'" for kind in KINDS)]
        )
        columns = "(id BIGINT, v STRING, tags ARRAY<STRING>)"
        spark.sql(f"CREATE TABLE {self.sql_name} {columns} USING iceberg TBLPROPERTIES ({properties})")
        for begin in range(0, files * ROWS, ROWS):
            rows = spark.range(begin, begin + ROWS, 1, 1).selectExpr("id", "'old' AS v", "array('t') AS tags")
            rows.writeTo(self.sql_name).append()
        self.expected = dict.fromkeys(range(files * ROWS), "old")

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return self.lake.catalog.load_table(self.path)

    def planned(self, gone: list[int], new: dict[int, str], branch: str = MAIN) -> tuple[Table, RowDelta]:
        """Return what takes keys out and puts rows in, on the table as it is now."""
        table = self.table
        base = head(table, branch)
        assert base is not None
        files = read_files(table, base)
        assert files is not None
        actual = find_rows(table, files, files.data, pa.table({"id": pa.array(gone, pa.int64())}))
        columns = [list(new), list(new.values()), [["t"]] * len(new)]
        rows = pa.table(columns, schema=table.schema().as_arrow())
        return table, RowDelta(base, files, actual, rows, {"cdc.note": "test"})

    def replace(self, gone: list[int], new: dict[int, str], branch: str = MAIN) -> int:
        """Do so."""
        table, delta = self.planned(gone, new, branch)
        made = commit_row_delta(table, delta, branch)
        self.expected = {id_: v for id_, v in self.expected.items() if id_ not in gone} | new
        return made

    def commit_late(self, table: Table, delta: RowDelta) -> None:
        """Commit what was planned for row 1 before others came first, and verify the rows."""
        commit_row_delta(table, delta, MAIN)
        self.expected[1] = "late"
        self.verify()

    def verify(self) -> None:
        """Spark's rows are those expected, each with its own row id, and the summary says how many."""
        rows = self.spark.table(self.sql_name).select("id", "v", "_row_id", "tags").collect()
        assert self.expected == {row["id"]: row["v"] for row in rows}
        assert len(self.expected) == len(rows) == len({row["_row_id"] for row in rows} - {None})
        assert {("t",)} >= {tuple(row["tags"]) for row in rows}
        assert len(self.expected) == count_rows(head(self.table))
        assert len(self.expected) == self.table.scan().to_arrow().num_rows


KINDS: Final = ("merge", "update", "delete")


def test_a_new_table_gets_its_first_snapshot(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """It has no row; Spark and this process both build on it, and of two runs one commits it."""
    subject = Subject(spark, session_lake, "begun", files=0)
    planned_twice = subject.table, subject.table
    assert all(commit_first(table) for table in planned_twice)
    subject.verify()
    (first,) = subject.table.snapshots()
    spark.sql(f"INSERT INTO {subject.sql_name} VALUES (1, 'old', array('t'))")
    subject.expected[1] = "old"
    subject.replace([1], {2: "new"})
    subject.verify()
    spark.sql(f"DELETE FROM {subject.sql_name} WHERE id = 2")
    del subject.expected[2]
    subject.verify()
    assert [None, first.snapshot_id] == [entry.parent_snapshot_id for entry in subject.table.snapshots()[:2]]


def test_spark_reads_what_was_committed(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Rows go and come, commit on commit; of each data file there is one vector with all that is gone."""
    subject = Subject(spark, session_lake, "read")
    subject.replace([5, 1500], {5: "new", 9000: "first"})
    subject.verify()
    made = subject.replace([5, 6, 9000], {5: "newer"})
    subject.verify()
    subject.replace([], {9001: "first"})
    subject.replace([9001], {})
    subject.replace([], {})
    subject.verify()
    vectors = spark.table(f"{subject.sql_name}.delete_files").select("record_count", "file_format").collect()
    assert sorted(map(tuple, vectors)) == [(1, "PUFFIN"), (1, "PUFFIN"), (2, "PUFFIN"), (2, "PUFFIN")]
    at = spark.sql(f"SELECT count(*) AS n FROM {subject.sql_name} VERSION AS OF {made}").collect()
    assert at[0]["n"] == 2 * ROWS - 2


def test_spark_continues_with_it(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """A MERGE, a compaction, an expiry, the next change from here: rows are right after each."""
    subject = Subject(spark, session_lake, "goes_on")
    subject.replace([1, 2], {1: "here"})
    spark.sql(f"UPDATE {subject.sql_name} SET v = 'spark' WHERE id IN (1, 3)")
    subject.expected |= {1: "spark", 3: "spark"}
    subject.verify()
    subject.replace([3, 4], {3: "again"})
    subject.verify()
    assert compact_all_files(spark, subject.table) > 0
    subject.verify()
    subject.replace([3], {3: "after"})
    spark.sql(f"CALL lake.system.rewrite_manifests('{subject.path}')")
    subject.verify()
    subject.replace([7], {})
    newest = head(subject.table)
    old = [snapshot.snapshot_id for snapshot in subject.table.metadata.snapshots]
    assert newest is not None
    assert expire_snapshots(spark, subject.path, [item for item in old if item != newest.snapshot_id]) > 0
    subject.verify()
    subject.replace([8], {8: "last"})
    subject.verify()


def test_a_change_is_built_upon_what_it_was_planned_on(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A commit of another run to the same branch is kept, and the files of the one that lost are deleted."""
    subject = Subject(spark, session_lake, "conflict")
    table, delta = subject.planned([1], {1: "late"})
    subject.replace([1], {1: "first"})
    files = _files(subject.table)
    with pytest.raises(CommitConflict, match=r"changed the branch `main` of row_delta\.conflict"):
        commit_row_delta(table, delta, MAIN)
    assert files == _files(subject.table)
    subject.verify()


def test_a_commit_that_another_run_has_built_upon_stays(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog that makes a commit and reports a conflict loses no file when others build on it."""
    subject = Subject(spark, session_lake, "built_upon")
    table, delta = subject.planned([1], {1: "late"})
    commit_table = table.catalog.commit_table

    def refuse_afterwards(*arguments: Any) -> None:
        commit_table(*arguments)
        monkeypatch.undo()
        subject.replace([8], {8: "on it"})
        raise CommitFailedException("made all the same")

    monkeypatch.setattr(table.catalog, "commit_table", refuse_afterwards)
    subject.commit_late(table, delta)


def test_a_try_that_arrives_late_keeps_its_list(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that is carried out after its refusal, so that the next is refused, loses no file."""
    subject = Subject(spark, session_lake, "late")
    table, delta = subject.planned([1], {1: "late"})
    commit_table, requests = table.catalog.commit_table, list[tuple[Any, ...]]()

    def carry_out_late(*arguments: Any) -> Any:
        requests.append(arguments)
        if len(requests) == 1:
            raise CommitFailedException("carried out all the same")
        monkeypatch.undo()
        commit_table(*requests[0])
        return commit_table(*arguments)

    monkeypatch.setattr(table.catalog, "commit_table", carry_out_late)
    subject.commit_late(table, delta)
    assert len(requests) == 2


def test_a_tag_that_comes_in_between_costs_no_file(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that is tried again with the same sequence number keeps the manifest list of that try."""
    subject = Subject(spark, session_lake, "tagged")
    table, delta = subject.planned([1], {1: "late"})
    write = Version3Metadata._write_metadata  # noqa: SLF001  a moment between what the catalog reads and writes

    def tag_before(**arguments: Any) -> None:
        monkeypatch.undo()
        spark.sql(f"ALTER TABLE {subject.sql_name} CREATE TAG pinned")
        write(**arguments)

    monkeypatch.setattr(Version3Metadata, "_write_metadata", staticmethod(tag_before))
    subject.commit_late(table, delta)


def _files(table: Table) -> set[Path]:
    folder = Path(url2pathname(urlsplit(table.location()).path))
    return {path for path in folder.rglob("*") if not path.name.endswith(".crc")}


@pytest.mark.parametrize(
    "rival",
    [
        lambda subject: subject.replace([], {9002: "second"}),  # takes row ids
        lambda subject: subject.replace([8, 9], {}),  # takes none
        lambda subject: subject.spark.sql(f"DELETE FROM {subject.sql_name} WHERE id IN (8, 9)"),
    ],
)
def test_a_commit_to_another_branch_is_none_of_its_business(
    spark: "SparkSession",
    session_lake: LakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    rival: Callable[[Subject], object],
) -> None:
    """It takes the numbers that the table has for it then, also where that happens in between, twice."""
    subject = Subject(spark, session_lake, f"other_{uuid4().hex}")
    retention = "RETAIN 30 DAYS WITH SNAPSHOT RETENTION 5 SNAPSHOTS"
    spark.sql(f"ALTER TABLE {subject.sql_name} CREATE BRANCH {BRANCH} {retention}")
    table, delta = subject.planned([1], {1: "late", 9000: "first"}, BRANCH)
    rival(subject)
    rivals = [rival]

    def interrupted(*args: Any) -> Any:
        if rivals:
            rivals.pop()(subject)
        return number_manifests(*args)

    monkeypatch.setattr(row_delta, "number_manifests", interrupted)
    made = commit_row_delta(table, delta, BRANCH)
    metadata = subject.table.metadata
    numbers = [snapshot.sequence_number for snapshot in metadata.snapshots]
    assert list(range(1, len(numbers) + 1)) == numbers
    branch = metadata.refs[BRANCH]
    assert (made, 5, 30 * 86_400_000) == (
        branch.snapshot_id,
        branch.min_snapshots_to_keep,
        branch.max_ref_age_ms,
    )
    assert {"late", "first", "old"} == {
        row["v"] for row in spark.sql(f"SELECT v FROM {subject.sql_name} VERSION AS OF '{BRANCH}'").collect()
    }
    spark.sql(f"CALL lake.system.set_current_snapshot('{subject.path}', {made})")
    subject.expected = dict.fromkeys(range(2 * ROWS), "old") | {1: "late", 9000: "first"}
    subject.verify()


def test_the_summary_is_that_of_spark(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Of the file that vectors share each counts with its part; the totals are those of what there is."""
    subject = Subject(spark, session_lake, "summary")
    subject.replace([1, 1500], {})
    first = head(subject.table)
    subject.replace([2], {9000: "first"})
    second = head(subject.table)
    assert first is not None
    assert second is not None
    assert tuple(
        snapshot.summary.operation for snapshot in (first, second) if snapshot.summary is not None
    ) == (
        Operation.DELETE,
        Operation.OVERWRITE,
    )
    vectors = ("added-dvs", "added-position-deletes", "removed-dvs")
    assert [fact(first, key) for key in vectors] == ["2", "2", None]
    assert [fact(second, key) for key in vectors] == ["1", "2", "1"]
    assert [fact(second, key) for key in ("total-records", "total-delete-files")] == ["2001", "2"]
    sizes = {"data_files": "file_size_in_bytes", "delete_files": "content_size_in_bytes"}
    file_sizes = [
        row["size"]
        for files, size in sizes.items()
        for row in spark.table(f"{subject.sql_name}.{files}").selectExpr(f"sum({size}) AS size").collect()
    ]
    assert sum(file_sizes) == int(fact(second, "total-files-size") or 0)


def test_the_metadata_keeps_all_that_spark_has_written(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Written again by pyiceberg, it says the same of schemas, branches, tags, statistics and the rest."""
    subject = Subject(spark, session_lake, "metadata")
    spark.sql(f"ALTER TABLE {subject.sql_name} ADD COLUMN w DECIMAL(9, 2) COMMENT 'money'")
    spark.sql(f"ALTER TABLE {subject.sql_name} CREATE TAG pinned RETAIN 30 DAYS")
    spark.sql(f"ALTER TABLE {subject.sql_name} WRITE ORDERED BY id")
    spark.sql(f"CALL lake.system.compute_table_stats('{subject.path}')")
    before = _metadata(subject.table)
    subject.table.transaction().set_properties({"cdc.test": "1"}).commit_transaction()
    after = _metadata(subject.table)
    changed = {"properties", "metadata-log", "last-updated-ms"}
    assert before.keys() == after.keys()
    for key in before.keys() - changed:
        assert _plain(before[key]) == _plain(after[key]), key


def _metadata(table: Table) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads(table.io.new_input(table.metadata_location).open().read())
    return metadata


def _plain(nested: Any) -> Any:
    """Return what metadata says without empty lists, which may be left out."""
    if isinstance(nested, dict):
        return {key: _plain(value) for key, value in nested.items() if value != []}
    return [_plain(value) for value in nested] if isinstance(nested, list) else nested


def test_a_table_whose_rows_are_deleted_otherwise_is_sparks(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Format version 2 has files of positions instead of vectors, and a table that had it may have both."""
    subject = Subject(spark, session_lake, "second", version=2)
    spark.sql(f"DELETE FROM {subject.sql_name} WHERE id = 1")
    snapshot = head(subject.table)
    assert snapshot is not None
    assert read_files(subject.table, snapshot) is None
    spark.sql(f"ALTER TABLE {subject.sql_name} SET TBLPROPERTIES ('format-version'='3')")
    assert read_files(subject.table, snapshot) is None


def test_a_table_with_other_files_than_parquet_is_sparks(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """This process reads the rows of Parquet files batch by batch, and of no others."""
    subject = Subject(spark, session_lake, "formats")
    spark.sql(f"ALTER TABLE {subject.sql_name} SET TBLPROPERTIES ('write.format.default'='orc')")
    spark.sql(f"INSERT INTO {subject.sql_name} SELECT * FROM {subject.sql_name} WHERE id = 1")
    snapshot = head(subject.table)
    assert snapshot is not None
    assert read_files(subject.table, snapshot) is None


def test_a_text_whose_bound_cannot_be_cut_is_written(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """The letter U+D7FF has no next one; its file has no bounds."""
    subject = Subject(spark, session_lake, "bounds")
    subject.replace([1], {1: "x" * 15 + "\ud7ff" + "x" * 9})
    subject.verify()
    subject.replace([1], {1: "again"})
    subject.verify()


def test_an_encrypted_table_is_sparks(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Its metadata has keys that pyiceberg would leave out."""
    subject = Subject(spark, session_lake, "encrypted")
    subject.table.transaction().set_properties({"encryption.key-id": "key"}).commit_transaction()
    snapshot = head(subject.table)
    assert snapshot is not None
    assert read_files(subject.table, snapshot) is None
