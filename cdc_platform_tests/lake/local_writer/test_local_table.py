"""Tables with partitions that this process changes: Spark finds each row and each vector in its partition."""

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import MAIN, fact, head
from cdc_platform.lake.commits.new_tables import create_table
from cdc_platform.lake.local_writer.local_table import KeyRows, LocalTable, commit_first, open_local
from cdc_platform_tests.example_tables import table as example_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

NAMESPACE: Final = "local_table"
COLUMNS: Final = ("id", "kind", "is_open", "v")
MOVED: Final = [(2, "a", False, "moved"), (5, "c d/ä", True, "new"), (6, None, True, "new")]


class Subject:
    """A table of Spark with partitions of two columns."""

    def __init__(
        self, spark: "SparkSession", lake: LakeSettings, name: str, spec: str = "is_open, kind"
    ) -> None:
        self.spark, self.lake, self.path = spark, Lake(lake, NAMESPACE), f"{NAMESPACE}.{name}"
        self.sql_name = f"lake.{self.path}"
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{NAMESPACE}")
        modes = ", ".join(f"'write.{kind}.mode'='merge-on-read'" for kind in ("merge", "update", "delete"))
        spark.sql(
            f"CREATE TABLE {self.sql_name} (id BIGINT, kind STRING, is_open BOOLEAN, v STRING) USING iceberg "
            f"PARTITIONED BY ({spec}) TBLPROPERTIES ('format-version'='3', {modes})"
        )

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return self.lake.catalog.load_table(self.path)

    def opened(self) -> LocalTable | None:
        """Return the table's newest snapshot for this process."""
        base = head(self.table)
        assert base is not None
        return open_local(self.table, base)

    def find(self, *ids: int, is_open: bool = True) -> tuple[LocalTable, KeyRows]:
        """Return the rows with some keys in the partitions of one kind."""
        local = self.opened()
        assert local is not None
        keys = pa.table({"id": pa.array(ids, pa.int64())})
        return local, local.find(local.candidate_files(keys, {"is_open": is_open}), keys)

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows as Spark reads them, after a comparison with those of pyiceberg."""
        rows = [tuple(row) for row in self.spark.table(self.sql_name).select(*COLUMNS).collect()]
        others = [tuple(row.values()) for row in self.table.scan().to_arrow().select(COLUMNS).to_pylist()]
        assert sorted(rows) == sorted(others)
        return sorted(rows)


def as_rows(local: LocalTable, rows: list[tuple[Any, ...]]) -> pa.Table:
    """Return rows with the columns of a table."""
    schema = local.table.schema().as_arrow()
    return pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows], schema=schema)


def test_rows_move_between_partitions_and_spark_continues(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Each row is in a file of its partition, and a vector deletes rows of one partition only."""
    subject = Subject(spark, session_lake, "moved")
    assert commit_first(subject.table)
    values = "(1, 'a', true, 'x'), (2, 'a', true, 'x'), (2, 'a', false, 'x'), (3, 'b', true, 'x')"
    spark.sql(f"INSERT INTO {subject.sql_name} VALUES {values}")
    local, key_rows = subject.find(2, 3, 7)
    assert sorted(local.read(key_rows, ["id"])["id"].to_pylist()) == [2, 3]
    local.commit(key_rows, as_rows(local, MOVED), MAIN, {})
    kept = [(1, "a", True, "x"), (2, "a", False, "x")]
    assert sorted([*kept, *MOVED], key=repr) == sorted(subject.rows(), key=repr)
    open_rows = spark.table(subject.sql_name).where("is_open AND kind = 'c d/ä'").collect()
    assert [tuple(row) for row in open_rows] == [(5, "c d/ä", True, "new")]
    partitions = {
        (row["partition"]["is_open"], row["partition"]["kind"], row["record_count"])
        for row in spark.table(f"{subject.sql_name}.delete_files").collect()
    }
    assert {(True, "a", 1), (True, "b", 1)} == partitions
    version = head(subject.table)
    assert version is not None
    assert fact(version, "changed-partition-count") == "3"
    spark.sql(f"UPDATE {subject.sql_name} SET v = 'spark' WHERE id IN (1, 5)")
    local, key_rows = subject.find(1, 5, 6)
    local.commit(key_rows, as_rows(local, []), MAIN, {})
    assert sorted([(2, "a", False, "moved"), (2, "a", False, "x")]) == subject.rows()


@pytest.mark.parametrize("spec", ["bucket(4, id)", "is_open, truncate(2, kind)"])
def test_partitions_of_computed_values_are_sparks(
    spark: "SparkSession", session_lake: LakeSettings, spec: str
) -> None:
    """This process partitions rows by plain values only."""
    subject = Subject(spark, session_lake, f"computed_{len(spec)}", spec)
    assert not commit_first(subject.table)
    spark.sql(f"INSERT INTO {subject.sql_name} VALUES (1, 'a', true, 'x')")
    assert subject.opened() is None


def test_partitions_of_floating_point_numbers_are_sparks(session_lake: LakeSettings) -> None:
    """NaN equals no number, and 0.0 equals -0.0: this process would lose rows, and repeat others."""
    lake = Lake(session_lake, NAMESPACE)
    for type_name in ("FLOAT32", "FLOAT64"):
        columns = example_table(type_name, {"id": "INT64"}, {"rate": type_name})
        create_table(lake.catalog, (NAMESPACE, type_name), columns, 3, "rate")
        assert not commit_first(lake.catalog.load_table((NAMESPACE, type_name)))


def test_a_table_whose_partitions_have_changed_is_sparks(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Its older files have other partitions; once they are gone, this process changes it again."""
    subject = Subject(spark, session_lake, "changed", "kind")
    spark.sql(f"INSERT INTO {subject.sql_name} VALUES (1, 'a', true, 'x'), (2, 'a', true, 'x')")
    spark.sql(f"ALTER TABLE {subject.sql_name} ADD PARTITION FIELD is_open")
    assert subject.opened() is None
    spark.sql(f"DELETE FROM {subject.sql_name}")
    spark.sql(f"INSERT INTO {subject.sql_name} VALUES (3, 'a', true, 'x')")
    local, key_rows = subject.find(3)
    local.commit(key_rows, as_rows(local, [(4, "b", False, "y")]), MAIN, {})
    assert subject.rows() == [(4, "b", False, "y")]
