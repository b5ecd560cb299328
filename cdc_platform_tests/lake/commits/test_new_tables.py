"""New tables of source tables: Spark takes them for tables that it has created itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.new_tables import MERGE_ON_READ, create_table
from cdc_platform.model.schema.table_schema import PRIMARY_KEY, spark_type
from cdc_platform_tests.example_tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMESPACE: Final = "new_tables"
TYPES: Final = {
    **{name.lower(): name for name in ("BOOL", "FLOAT32", "FLOAT64", "NUMERIC", "DATE", "TIMESTAMP", "JSON")},
    "a.b": "STRING(MAX)",
    "numbers": "ARRAY<INT64>",
    "is open": "BOOL",
}
SCHEMA: Final = table("created", {"id": "INT64", "Région": "STRING(MAX)"}, TYPES)


@pytest.mark.integration
def test_spark_finds_columns_partitions_and_properties(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Columns have their types and the comments of keys, and rows are written to their partitions."""
    lake = Lake(session_lake, NAMESPACE)
    create_table(lake.catalog, (NAMESPACE, "created"), SCHEMA, 3, "is open", "Région")
    name = lake.spark_table("created")
    columns = spark.catalog.listColumns(name.replace("`", ""))
    assert [(column.name, spark_type(column.type)) for column in SCHEMA.columns] == [
        (field.name, field.dataType.simpleString()) for field in spark.table(name).schema.fields
    ]
    assert {"id", "Région"} == {column.name for column in columns if column.description == PRIMARY_KEY}
    assert all(column.nullable for column in columns)
    spark.sql(f"INSERT INTO {name} (id, `Région`, `is open`) VALUES (1, 'ä/b', true), (2, NULL, false)")
    partitions = {tuple(row["partition"]) for row in spark.table(f"{name}.partitions").collect()}
    assert {(True, "ä/b"), (False, None)} == partitions
    spark.sql(f"UPDATE {name} SET `a.b` = 'x' WHERE id = 1")
    assert [
        (row["file_format"], lake.catalog.load_table(f"{NAMESPACE}.created").metadata.format_version)
        for row in spark.table(f"{name}.delete_files").collect()
    ] == [("PUFFIN", 3)]


def test_a_table_that_another_run_has_created_is_left_as_it_is(session_lake: LakeSettings) -> None:
    """Of two runs that find no table the second does nothing."""
    lake = Lake(session_lake, NAMESPACE)
    for columns in ({"id": "INT64"}, {"other": "INT64"}):
        create_table(lake.catalog, (NAMESPACE, "twice"), table("twice", columns, {}), 2)
    assert lake.catalog.load_table(f"{NAMESPACE}.twice").schema().column_names == ["id"]


def test_properties_of_the_catalog_for_new_tables_apply(tmp_path: Path) -> None:
    """As with Spark, defaults give way to the platform's properties, and overrides do not."""
    properties = {
        "table-default.encryption.key-id": "k",
        "table-default.write.merge.mode": "copy-on-write",
        "table-override.write.parquet.compression-codec": "gzip",
    }
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": tmp_path.as_uri()}
    lake = Lake(LakeSettings(str(tmp_path), catalog | properties), NAMESPACE)
    create_table(lake.catalog, (NAMESPACE, "created"), table("created", {"id": "INT64"}, {}), 3)
    expected = MERGE_ON_READ | {"encryption.key-id": "k", "write.parquet.compression-codec": "gzip"}
    assert expected == lake.catalog.load_table(f"{NAMESPACE}.created").properties
