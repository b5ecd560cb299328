"""The key of a merged table is known to Iceberg, and so to every engine that reads it."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from pyiceberg.table import Table

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.declared_keys import DECLARED, HAS_NULLS, declare_key
from cdc_platform.lake.commits.maintenance import compact_all_files
from cdc_platform.model.base.names import lake_table_name
from cdc_platform.model.schema.table_options import TableOptions, history_name
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.records import ModType
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


@pytest.mark.parametrize(("version", "is_local"), [(3, True), (3, False), (2, False)])
def test_engines_see_the_key(
    spark: "SparkSession", session_lake: LakeSettings, version: int, *, is_local: bool
) -> None:
    """Key columns are required and are the identifier fields, whatever merges; all readers read the table."""
    pipeline = bank_pipeline(replace(session_lake, table_format_version=version))
    pipeline = pipeline if is_local else merging_by_spark(pipeline)
    for number in (1, 2):
        feed_cycle(pipeline, number)
        run_steps(pipeline, spark)
    assert ({"id"}, {"id"}) == key_of(found_table(pipeline, "accounts"))
    name = pipeline.lake.spark_table("accounts")
    described = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    assert described["identifier-fields"] == "[id]"
    assert [field.nullable for field in spark.table(name).schema.fields] == [False, True, True]
    assert expected_balances(2) == balances(pipeline)
    assert expected_balances(2) == dict(spark.table(name).select("id", "balance").collect())
    cut = open_tables(pipeline.settings.lake, pipeline.name).at()
    rows = cut.duckdb().sql("SELECT id, balance FROM accounts").fetchall()
    assert expected_balances(2) == dict(rows)
    polars = cut.polars("accounts").select("id", "balance")
    assert expected_balances(2) == dict(polars.iter_rows())


def test_a_table_without_changes_has_its_key_from_the_first_snapshot(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """The declaration of a new table costs no snapshot, now or later."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    table = found_table(pipeline, "transfers")
    assert ({"tid"}, {"tid"}) == key_of(table)
    (only,) = table.metadata.snapshots
    assert table.metadata.current_schema_id == only.schema_id


def test_a_table_of_an_earlier_version_gets_its_key(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """The next cycle declares the key over files that were written without it."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    undeclare(found_table(pipeline, "accounts"))
    assert key_of(found_table(pipeline, "accounts")) == NOTHING
    feed_cycle(pipeline, 2)
    run_steps(pipeline, spark)
    assert ({"id"}, {"id"}) == key_of(found_table(pipeline, "accounts"))
    assert expected_balances(2) == balances(pipeline)
    rows = spark.table(pipeline.lake.spark_table("accounts")).select("id", "balance").collect()
    assert expected_balances(2) == dict(rows)


@pytest.mark.parametrize("is_local", [True, False])
def test_a_null_in_a_key_takes_the_declaration_back(
    spark: "SparkSession", session_lake: LakeSettings, *, is_local: bool
) -> None:
    """Iceberg knows no optional identifier: the key is not declared any more, and the row is there."""
    schema = table("t", {"g": "STRING(9)", "id": "INT64"}, {"a": "INT64"})
    pipeline = make_pipeline(session_lake, (schema,))
    pipeline = pipeline if is_local else merging_by_spark(pipeline)
    for number, group in enumerate(("x", None, "y")):
        feed(pipeline, START + number * SECOND, inserted(schema, number, {"g": group, "id": "1"}, a="7"))
        run_steps(pipeline, spark)
        expected = NOTHING if number else ({"g", "id"}, {"g", "id"})
        assert expected == key_of(found_table(pipeline, "t"))
    assert {"x", "y", None} == {row["g"] for row in rows_of(pipeline, "t")}
    assert found_table(pipeline, "t").properties[DECLARED] == HAS_NULLS


def test_a_table_of_an_earlier_version_with_nulls_in_its_key_stays_as_it_is(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Engines would fail at a file with a NULL in a required column, so the files decide."""
    schema = table("t", {"id": "INT64"}, {"a": "INT64"})
    pipeline = make_pipeline(session_lake, (schema,))
    feed(pipeline, START, inserted(schema, 0, {"id": None}, a="7"))
    run_steps(pipeline, spark)
    with found_table(pipeline, "t").transaction() as transaction:
        transaction.remove_properties(DECLARED)
    feed(pipeline, START + SECOND, inserted(schema, 1, {"id": "1"}, a="8"))
    run_steps(pipeline, spark)
    assert key_of(found_table(pipeline, "t")) == NOTHING
    assert {None, 1} == {row["id"] for row in rows_of(pipeline, "t")}
    before = found_table(pipeline, "t").metadata_location
    declare_key(found_table(pipeline, "t"), ["id"])
    assert before == found_table(pipeline, "t").metadata_location


def test_a_floating_point_key_is_required_and_no_identifier(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Iceberg forbids identifier fields that are floating-point numbers."""
    schema = table("t", {"f": "FLOAT64", "id": "INT64"}, {"a": "INT64"})
    pipeline = make_pipeline(session_lake, (schema,))
    feed(pipeline, START, inserted(schema, 0, {"f": "0.5", "id": "1"}, a="7"))
    run_steps(pipeline, spark)
    assert ({"f", "id"}, set()) == key_of(found_table(pipeline, "t"))


def test_a_history_has_no_identifier(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Two versions of a row may begin at the same moment, so no columns identify a version."""
    pipeline = bank_pipeline(session_lake, accounts=TableOptions(history=True, soft_delete=True))
    for number in (1, 2):
        feed_cycle(pipeline, number)
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
    compact_all_files(spark, f"{pipeline.name}.{lake_table_name('accounts')}")
    declared = declare_key(found_table(pipeline, "accounts"), both)
    assert ({*both}, {*both}) == key_of(declared)
    assert DECLARED not in declared.properties
    # The former key column is none any more: it may become NULL.
    assert ({"shard"}, {"shard"}) == key_of(declare_key(declared, ["shard"]))
