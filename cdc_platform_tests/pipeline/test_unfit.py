"""Values that do not fit the type of their column: never NULL, never silent, and the rest continues."""

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.checks.check_result import EVERYTHING, CheckResult
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.on_demand.status import read_status
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.pipeline.bank import SECOND, bank_pipeline, opening
from cdc_platform_tests.support.pipelines import (
    ACCOUNTS,
    CHECKS,
    START,
    data_change,
    feed,
    log_rows,
    quarantined_rows,
    rows_of,
    run_steps,
    source_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def result(pipeline: Pipeline, spark: "SparkSession", name: str) -> CheckResult:
    """Return what a check finds."""
    check = next(check for check in CHECKS if check.name == name)
    return check.run(pipeline, spark, EVERYTHING)


def test_a_transaction_with_an_unfit_value_is_quarantined(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """It is missing from log and tables whole; the reason names the value, and the checks say so."""
    pipeline = bank_pipeline(session_lake)
    bad = data_change(
        "accounts", ModType.INSERT, ({"id": "2"}, {"balance": "a lot"}), at_micros=START + 2,
        transaction="bad", records=2, schema=ACCOUNTS,
    )  # fmt: skip
    with_it = data_change(
        "transfers", ModType.INSERT, ({"tid": "x"}, {"amount": "1"}), at_micros=START + 2,
        transaction="bad", records=2, sequence=1,
    )  # fmt: skip
    feed(pipeline, START + SECOND, opening(1, 100, START + 1), bad, with_it, opening(3, 300, START + 3))
    run_steps(pipeline, spark)

    assert [(row["id"], row["balance"]) for row in rows_of(pipeline, "accounts")] == [(1, 100), (3, 300)]
    assert rows_of(pipeline, "transfers") == []
    assert {row["record_id"]: row["reason"] for row in quarantined_rows(pipeline)} == {
        "bad/00000000": "`balance` of `accounts` is INT64, which cannot hold: a lot",
        "bad/00000001": "another record of its transaction is in quarantine",
    }
    assert read_status(pipeline).quarantined == 2
    check_result = result(pipeline, spark, "nothing_lost")
    assert (check_result.passed, check_result.facts["quarantined"]) == (True, 2)
    assert result(pipeline, spark, "tables_equal_log").passed
    rows = {"accounts": [{"id": n, "owner": f"owner {n}", "balance": 100 * n} for n in (1, 2, 3)]}
    types = {"accounts": pa.schema([("id", "int64"), ("owner", "string"), ("balance", "int64")])}
    source_of(pipeline).rows_at = lambda name, _micros: iter(
        pa.Table.from_pylist(rows.get(name, []), types.get(name, pa.schema([]))).to_batches()
    )
    actual = result(pipeline, spark, "tables_equal_source")
    assert not actual.passed
    assert actual.summary.endswith("2 records in quarantine are missing from the tables")


def test_a_value_whose_type_its_record_lacks_is_judged_by_the_table(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A record without column types is taken for one of the table as it is; what misfits is set aside."""
    pipeline = bank_pipeline(session_lake)
    change = ({"id": "1"}, {"balance": "a lot"})
    record = data_change("accounts", ModType.INSERT, change, at_micros=START + 1, transaction="t")
    feed(pipeline, START + SECOND, record)
    order_changes(pipeline, spark)
    merge_tables(pipeline, spark, pipeline.tables)
    (quarantined,) = quarantined_rows(pipeline)
    assert quarantined["reason"] == "`balance` of `accounts` is INT64, which cannot hold: a lot"
    assert log_rows(pipeline) == []
    assert rows_of(pipeline, "accounts") == []
    # There is no cut, and another cycle would make none: the checks of tables say so.
    for name in ("tables_equal_log", "keys_unique", "tables_equal_source"):
        actual = result(pipeline, spark, name)
        assert (actual.passed, "all records read so far are in quarantine (1)" in actual.summary) == (
            (False, True)
        )


def test_a_row_whose_deletion_is_quarantined_is_not_there_twice(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Inserted again at the source, it replaces the row that the lake still has, and ends its version."""
    pipeline = bank_pipeline(session_lake, accounts=TableOptions(history=True))
    feed(pipeline, START + SECOND, opening(1, 100, START + 1))
    run_steps(pipeline, spark)
    with_it = data_change(
        "accounts", ModType.INSERT, ({"id": "2"}, {"balance": "a lot"}), at_micros=START + SECOND + 1,
        transaction="bad", records=2, schema=ACCOUNTS,
    )  # fmt: skip
    gone = data_change(
        "accounts", ModType.DELETE, ({"id": "1"}, {}), at_micros=START + SECOND + 1,
        transaction="bad", records=2, sequence=1,
    )  # fmt: skip
    again = opening(1, 50, START + SECOND + 2)
    feed(pipeline, START + 2 * SECOND, with_it, gone, again)
    run_steps(pipeline, spark)

    assert [(row["id"], row["balance"]) for row in rows_of(pipeline, "accounts")] == [(1, 50)]
    versions = [(row["balance"], row["is_current"]) for row in rows_of(pipeline, "accounts__history")]
    assert sorted(versions) == [(50, True), (100, False)]
    assert result(pipeline, spark, "keys_unique").passed
    assert result(pipeline, spark, "histories_sound").passed


def test_what_is_quarantined_shows_its_columns_all_the_same(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """The table has a column from the first record on that names it, though its cycle brought no change."""
    pipeline = bank_pipeline(session_lake)
    feed(pipeline, START + SECOND, opening(1, 100, START + 1))
    run_steps(pipeline, spark)
    wider = table(
        "accounts", {"id": "INT64"}, {"owner": "STRING(9)", "balance": "INT64", "note": "STRING(9)"}
    )
    source_of(pipeline).schemas = (wider, *source_of(pipeline).schemas[1:])
    bad = data_change(
        "accounts", ModType.INSERT, ({"id": "2"}, {"balance": "a lot", "note": "n"}),
        at_micros=START + SECOND + 5, transaction="bad", schema=wider,
    )  # fmt: skip
    feed(pipeline, START + 2 * SECOND, bad)
    order_changes(pipeline, spark)
    assert len(quarantined_rows(pipeline)) == 1
    note = pipeline.schema_history.tables["accounts"].live("note")
    assert note is not None
    assert note.since.micros == START + SECOND + 5
