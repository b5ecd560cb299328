"""The key of a merged table is known to Iceberg, and so to every engine that reads it."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from pyiceberg.table import Table

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import fact, head
from cdc_platform.lake.commits.declared_keys import DECLARED, HAS_NULLS, declare_key
from cdc_platform.lake.commits.maintenance import compact_all_files
from cdc_platform.model.schema.table_options import TableOptions, history_name
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.read import open_tables
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.pipeline.bank import SECOND, balances, bank_pipeline, expected_balances, feed_cycle
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import (
    START,
    data_change,
    feed,
    found_table,
    make_pipeline,
    merging_by_spark,
    rows_of,
    run_steps,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Key = tuple[set[str], set[str]]
NOTHING: Final[Key] = (set(), set())


def key_of(table: Table) -> Key:
    """Return the required columns of a table, and its identifier fields."""
    schema = table.schema()
    return {field.name for field in schema.fields if field.required}, schema.identifier_field_names()


def undeclare(table: Table) -> None:
    """Let a table be as an earlier version of the platform has made it."""
    with table.update_schema() as update:
        update.set_identifier_fields()
        for field in table.schema().fields:
            update.make_column_optional((field.name,))


def inserted(schema: TableSchema, number: int, keys: dict[str, str | None], **values: str) -> RawRow:
    """Return the record of one row that is inserted."""
    at_micros = START + number * SECOND
    mod = (keys, values)
    name = f"{schema.name}-{number}"
    return data_change(schema.name, ModType.INSERT, mod, at_micros=at_micros, transaction=name, schema=schema)


def assert_engines_see_the_key(pipeline: Pipeline, spark: "SparkSession", number: int) -> None:
    """Compare what engines see of a table, its key and its rows, with one of the bank's cycles."""
    assert ({"id"}, {"id"}) == key_of(found_table(pipeline, "accounts"))
    name = pipeline.lake.spark_table("accounts")
    described = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    assert described["identifier-fields"] == "[id]"
    assert [field.nullable for field in spark.table(name).schema.fields] == [False, True, True]
    assert expected_balances(number) == balances(pipeline)
    assert expected_balances(number) == dict(spark.table(name).select("id", "balance").collect())
    cut = open_tables(pipeline.settings.lake, pipeline.name).at()
    rows = cut.duckdb().sql("SELECT id, balance FROM accounts").fetchall()
    assert expected_balances(number) == dict(rows)
    polars = cut.polars("accounts").select("id", "balance")
    assert expected_balances(number) == dict(polars.iter_rows())


def test_engines_see_the_key(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Key columns are required and are the identifier fields, with every merger; all readers read the table.

    A table of an earlier version gets its key by the next cycle, over files that were written without it.
    """
    pipeline = bank_pipeline(session_lake)
    for number, merger in enumerate((pipeline, pipeline, merging_by_spark(pipeline)), start=1):
        feed_cycle(pipeline, number)
        run_steps(merger, spark)
        assert ({"id"}, {"id"}) == key_of(found_table(pipeline, "accounts"))
    assert_engines_see_the_key(pipeline, spark, 3)
    undeclare(found_table(pipeline, "accounts"))
    assert key_of(found_table(pipeline, "accounts")) == NOTHING
    feed_cycle(pipeline, 4)
    run_steps(pipeline, spark)
    assert ({"id"}, {"id"}) == key_of(found_table(pipeline, "accounts"))
    assert expected_balances(4) == balances(pipeline)
    rows = spark.table(pipeline.lake.spark_table("accounts")).select("id", "balance").collect()
    assert expected_balances(4) == dict(rows)


def test_tables_without_vectors_are_merged_by_spark(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """In format version 2 rows are deleted by files of positions, which all engines read."""
    pipeline = bank_pipeline(replace(session_lake, table_format_version=2))
    for number in (1, 2):
        feed_cycle(pipeline, number)
        run_steps(pipeline, spark)
    newest = head(found_table(pipeline, "accounts"))
    assert newest is not None
    assert fact(newest, "engine-name") == "spark"
    assert_engines_see_the_key(pipeline, spark, 2)


def test_a_key_that_iceberg_does_not_take_is_not_declared(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """It knows no optional identifier, nor one of floating-point numbers: the first NULL ends a declaration.

    The row is there, whatever merges it. Of a table of an earlier version the files decide, since engines
    would fail at one with a NULL in a required column.
    """
    names = ("null, then local", "null, then Spark", "null of an earlier version")
    nulls = {name: table(name, {"g": "STRING(9)", "id": "INT64"}, {"a": "INT64"}) for name in names}
    floating = table("floating", {"f": "FLOAT64", "id": "INT64"}, {"a": "INT64"})
    pipeline = make_pipeline(session_lake, (*nulls.values(), floating))
    groups = dict(zip(names, (("x", None, "y"), ("x", "y", None), (None, "y", "z")), strict=True))
    declared = ({"g", "id"}, {"g", "id"})
    keys = dict(
        zip(names, ((declared, NOTHING, NOTHING), (declared, declared, NOTHING), (NOTHING,) * 3), strict=True)
    )
    for number, merger in enumerate((pipeline, pipeline, merging_by_spark(pipeline))):
        rows = [
            inserted(schema, number, {"g": groups[name][number], "id": "1"}, a="7")
            for name, schema in nulls.items()
        ]
        of_floats = inserted(floating, number, {"f": f"{number}.5", "id": "1"}, a="7")
        feed(pipeline, START + number * SECOND, *rows, of_floats)
        run_steps(merger, spark)
        for name in names:
            assert (name, keys[name][number]) == (name, key_of(found_table(pipeline, name)))
        assert ({"f", "id"}, set()) == key_of(found_table(pipeline, "floating"))
        if number == 0:
            with found_table(pipeline, names[2]).transaction() as transaction:
                transaction.remove_properties(DECLARED)
    for name in names:
        assert (name, {*groups[name]}) == (name, {row["g"] for row in rows_of(pipeline, name)})
        is_earlier = name == names[2]
        assert is_earlier or found_table(pipeline, name).properties[DECLARED] == HAS_NULLS
        before = found_table(pipeline, name).metadata_location
        declare_key(found_table(pipeline, name), ["g", "id"])
        assert (name, before) == (name, found_table(pipeline, name).metadata_location)


def test_a_history_has_no_identifier(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Two versions of a row may begin at the same moment, so no columns identify a version.

    A table without changes has its key from its first snapshot, and needs no other one for it.
    """
    pipeline = bank_pipeline(session_lake, accounts=TableOptions(history=True, soft_delete=True))
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    unchanged = found_table(pipeline, "transfers")
    assert ({"tid"}, {"tid"}) == key_of(unchanged)
    (only,) = unchanged.metadata.snapshots
    assert unchanged.metadata.current_schema_id == only.schema_id
    feed_cycle(pipeline, 2)
    run_steps(pipeline, spark)
    assert key_of(found_table(pipeline, history_name("accounts"))) == NOTHING
    assert ({"id"}, {"id"}) == key_of(found_table(pipeline, "accounts"))


def test_a_new_key_column_is_declared_once_no_file_lacks_it(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A change of the key is declared by the first cycle after a compaction that has rewritten the files."""
    pipeline = bank_pipeline(session_lake)
    for number in (1, 2):
        feed_cycle(pipeline, number)
        run_steps(pipeline, spark)
    name = pipeline.lake.spark_table("accounts")
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (shard INT)")
    both = ["shard", "id"]
    assert key_of(declare_key(found_table(pipeline, "accounts"), both)) == NOTHING
    spark.sql(f"UPDATE {name} SET shard = 1")
    assert key_of(declare_key(found_table(pipeline, "accounts"), both)) == NOTHING
    compact_all_files(spark, found_table(pipeline, "accounts"))
    declared = declare_key(found_table(pipeline, "accounts"), both)
    assert ({*both}, {*both}) == key_of(declared)
    assert DECLARED not in declared.properties
    # The former key column is none any more: it may become NULL.
    assert ({"shard"}, {"shard"}) == key_of(declare_key(declared, ["shard"]))
