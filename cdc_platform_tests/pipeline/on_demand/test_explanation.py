"""Provenance: which change set which column, where it came from, and which cut first showed it."""

import json
import math
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from cdc_platform.cli import main
from cdc_platform.commands.error_texts import ERROR_PAGES
from cdc_platform.commands.reading.explain import describe_explanation
from cdc_platform.errors import RowNotFound, TableNotFound
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.names import lake_table_name
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.stream.records import ModType, ValueCaptureType
from cdc_platform.pipeline.copying.copy import copy_tables
from cdc_platform.pipeline.on_demand.explanation import explain_row
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.printing.tables import as_text
from cdc_platform.sources.spanner.copying.columns import table_arrow_schema
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.pipeline.bank import SECOND, feed_cycle
from cdc_platform_tests.support.pipelines import (
    ACCOUNTS,
    START,
    TRANSFERS,
    data_change,
    feed,
    make_pipeline,
    rows_of,
    run_steps,
    source_of,
)
from cdc_platform_tests.yaml_files import bank_attributes, write_defs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

PRUNED = "the partition that the lineage forgot"
ORDERS = table("orders", {"region": "STRING(8)", "number": "INT64"}, {"amount": "NUMERIC"})
FORMER_ORDERS = table("orders", {"number": "INT64", "region": "STRING(8)"}, {"amount": "NUMERIC"})
"""The table before it was made again with another order of its key, and of its columns."""


@pytest.fixture(scope="module")
def bank(spark: "SparkSession", session_lake: LakeSettings) -> Pipeline:
    """A bank after two cuts and one cycle that is not published; orders have two key columns."""
    options = {"accounts": TableOptions(history=True)}
    pipeline = make_pipeline(session_lake, (ACCOUNTS, TRANSFERS, FORMER_ORDERS), options=options)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    feed_cycle(pipeline, 2)
    run_steps(pipeline, spark)
    begun = START + 3 * SECOND
    source_of(pipeline).schemas = (ACCOUNTS, TRANSFERS, ORDERS)
    order: Any = ({"region": "eu", "number": "7"}, {"amount": "1.5"})
    bad = {
        **data_change("orders", ModType.INSERT, order, at_micros=begun + 5, transaction="bad"),
        "mod_type": "UNKNOWN",
    }
    feed(
        pipeline,
        begun + SECOND - 1,
        data_change(
            "orders", ModType.INSERT, order, at_micros=begun, transaction="order", schema=FORMER_ORDERS
        ),
        data_change(
            "accounts",
            ModType.UPDATE,
            ({"id": "1"}, {"balance": None, "owner": "owner 1"}),
            at_micros=begun + 1,
            transaction="set-null",
            token=PRUNED,
        ),
        bad,
    )
    order_changes(pipeline, spark)
    return pipeline


def test_a_row_is_explained_from_its_first_change_to_its_last(bank: Pipeline) -> None:
    """Every change has its columns, transaction, partition, record and first cut; the row has its authors."""
    fields = explain_row(bank, "accounts", "1").to_dict()
    assert fields["key"] == {"id": "1"}
    assert fields["values"] == {"owner": "owner 1", "balance": None}
    assert fields["set_by"] == {"owner": 1, "balance": 3}
    facts = [
        (change["kind"], change["transaction_id"], change["partition"], change["cycle"], change["cut"])
        for change in fields["changes"]
    ]
    opened, moved = START + SECOND + 1, START + 2 * SECOND + 2
    assert facts == [
        ("insert", f"open-1-{opened}", "root", 1, 1),
        ("update", f"transfer-{moved}", "root", 2, 2),
        ("update", "set-null", PRUNED, 3, None),
    ]
    assert fields["changes"][1]["record_id"] == f"transfer-{moved}/00000000"
    assert fields["changes"][1]["columns"] == [
        {"column": "balance", "before": "100", "after": "90", "has_changed": True}
    ]
    assert [column["has_changed"] for column in fields["changes"][2]["columns"]] == [True, False]


def test_people_read_the_same(bank: Pipeline) -> None:
    """The text has the old and new values, and what gave the row its values; a deleted row says so."""
    text = as_text(describe_explanation(explain_row(bank, "accounts", "1")))
    assert text.startswith('accounts {"id":"1"}: 3 changes\n')
    assert 'balance  "100" -> "90"' in text
    assert 'owner    "owner 1" (set again)' in text
    assert "cycle        2, first shown by cut 2 at 2027-01-15T08:00:02.999999Z" in text
    assert "cycle        3, in no cut yet" in text
    assert 'owner    "owner 1"  set by #1' in text
    closed = as_text(describe_explanation(explain_row(bank, "accounts", "3")))
    assert 'balance  "100" -> NULL' in closed
    assert closed.endswith("now  deleted by #2")


@pytest.mark.parametrize(
    "key",
    [
        '["eu", 7]',  # the order of the key
        '{"number": "7", "region": "eu"}',  # any order
    ],
)
def test_a_key_of_two_columns_is_json(bank: Pipeline, key: str) -> None:
    """An object or an array names all columns; what lies in quarantine for the table is reported."""
    explanation = explain_row(bank, "orders", key)
    assert len(explanation.provenance.steps) == 1
    assert "1 record of this table in quarantine" in as_text(describe_explanation(explanation))


@pytest.mark.parametrize(
    ("name", "key", "error", "message"),
    [
        ("acounts", "1", TableNotFound, "no table `acounts`.*It has: accounts, orders, transfers"),
        ("accounts__history", "1", TableNotFound, "It has: accounts, orders"),  # it has no rows of its own
        ("accounts", "77", RowNotFound, 'no change of this key of `accounts`: {"id":"77"}'),
        ("accounts", "one", RowNotFound, "Key column `id` of `accounts` is long, and not: one"),
        ("orders", "eu", RowNotFound, '2 columns.*{"region": ..., "number": ...}'),  # not JSON
        ("orders", '["eu"]', RowNotFound, "2 columns"),  # a part of the key
    ],
)
def test_what_is_not_known_is_reported(
    bank: Pipeline, name: str, key: str, error: type[Exception], message: str
) -> None:
    """A wrong table or key is an error that names the right ones."""
    with pytest.raises(error, match=message):
        explain_row(bank, name, key)


def test_a_table_may_be_called_like_a_history(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """If the source has such a table, it is explained; a history is rejected as a history."""
    columns: Any = ({"id": "INT64"}, {"v": "INT64"})
    tables = (table("a.b", *columns), table("c", *columns), table("c__history", *columns))
    pipeline = make_pipeline(session_lake, tables, options={"a.b": TableOptions(history=True)})
    changes = (
        data_change(named.name, ModType.INSERT, ({"id": "1"}, {}), at_micros=START, transaction=named.name)
        for named in tables
    )
    feed(pipeline, START, *changes)
    run_steps(pipeline, spark)
    assert len(explain_row(pipeline, "c__history", "1").provenance.steps) == 1
    assert explain_row(pipeline, "a.b", "1") == explain_row(pipeline, lake_table_name("a.b"), "1")
    with pytest.raises(TableNotFound, match=r"It has: a\.b, c, c__history$"):
        explain_row(pipeline, "a.b__history", "1")


def test_equal_values_set_again_leave_the_copy_their_author(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A value is the same in copy and log, however either spells it, and the JSON has no word of its own."""
    values = {"n": "NUMERIC", "at": "TIMESTAMP", "f": "FLOAT64", "fs": "ARRAY<FLOAT64>"}
    schema = table("t", {"id": "INT64"}, values)
    pipeline = make_pipeline(session_lake, (schema,), copy_chunk_rows=10)
    at = datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)
    copied = {"id": 1, "n": Decimal("1.5"), "at": at, "f": math.nan, "fs": [1.0, math.inf]}
    rows = [pa.RecordBatch.from_pylist([copied], table_arrow_schema(schema))]
    source = source_of(pipeline)
    source.now_micros, source.rows_at = START + SECOND, lambda _table, _micros: iter(rows)
    copy_tables(pipeline, spark)
    again: Any = {"n": "1.5", "at": "2024-02-29T01:02:03Z", "f": "NaN", "fs": [1, "Infinity"]}
    change = data_change("t", ModType.UPDATE, ({"id": "1"}, again), at_micros=START + SECOND, transaction="a")
    feed(pipeline, START + 2 * SECOND, change)
    run_steps(pipeline, spark)
    explanation = explain_row(pipeline, "t", "1")
    assert dict.fromkeys(values, 0) == explanation.provenance.set_by
    assert again == json.loads(json.dumps(explanation.to_dict(), allow_nan=False))["copied_values"]


def test_a_provenance_continues_across_another_type_of_the_key(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """The initial copy and earlier changes are shown, under the key in its present spelling."""
    old, new = (table("t", {"id": code}, {"v": "STRING(9)"}) for code in ("STRING(9)", "BYTES(9)"))
    pipeline = make_pipeline(session_lake, (old,), copy_chunk_rows=10)
    rows = [pa.RecordBatch.from_pylist([{"id": "k", "v": "copied"}], table_arrow_schema(old))]
    source = source_of(pipeline)
    source.now_micros, source.rows_at = START + SECOND, lambda _table, _micros: iter(rows)
    later = START + 2 * SECOND
    source.schema_at = lambda micros: SchemaRead(micros, (old if micros < later else new,), {}, {})
    copy_tables(pipeline, spark)
    for until, schema, key in ((later - 1, old, "k"), (later + SECOND, new, "aw==")):
        mod: Any = ({"id": key}, {"v": f"by {key}"})
        change = data_change(
            "t", ModType.UPDATE, mod, at_micros=until, transaction=key, schema=schema,
            capture=ValueCaptureType.NEW_ROW,
        )  # fmt: skip
        feed(pipeline, until, change)
        run_steps(pipeline, spark)
    assert [row["id"] for row in rows_of(pipeline, "t")] == [b"k"]
    explanation = explain_row(pipeline, "t", "aw==")
    assert explanation.copied is not None
    assert dict(explanation.copied.values) == {"v": "copied"}
    assert [step.change.transaction_id for step in explanation.provenance.steps] == ["k", "aw=="]
    assert [step.columns[0].before for step in explanation.provenance.steps] == ["copied", "by k"]


def test_values_of_a_former_column_have_the_name_that_it_has_in_the_lake(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A column that came back with another type has none of them, a converted one has all."""
    old, new = (
        table("t", {"id": "INT64"}, {"v": v, "w": w})
        for v, w in (("INT64", "STRING(9)"), ("STRING(9)", "BYTES(9)"))
    )
    pipeline = make_pipeline(session_lake, (old,), copy_chunk_rows=10)
    rows = [pa.RecordBatch.from_pylist([{"id": 1, "v": 7, "w": "copied"}], table_arrow_schema(old))]
    source = source_of(pipeline)
    source.now_micros, source.rows_at = START + SECOND, lambda _table, _micros: iter(rows)
    later = START + 3 * SECOND
    source.schema_at = lambda micros: SchemaRead(micros, (old if micros < later else new,), {}, {})
    copy_tables(pipeline, spark)
    for until, schema, values in ((later - 1, old, {"w": "k"}), (later + SECOND, new, {"w": "aw=="})):
        mod: Any = ({"id": "1"}, values)
        change = data_change(
            "t", ModType.UPDATE, mod, at_micros=until, transaction=f"at {until}", schema=schema
        )
        feed(pipeline, until, change)
        run_steps(pipeline, spark)
    explanation = explain_row(pipeline, "t", "1")
    assert explanation.provenance.values == {"v__int64": "7", "w": "aw=="}
    assert explanation.provenance.set_by == {"v__int64": 0, "w": 2}
    assert [(row["v__int64"], row["v"], row["w"]) for row in rows_of(pipeline, "t")] == [(7, None, b"k")]


def test_the_commands_find_the_lake(bank: Pipeline, tmp_path: Path) -> None:
    """`explain` and `cuts` print text and JSON, need no Spark, and exit with 1 where something is unknown."""
    attributes = bank_attributes(name=bank.name, lake={"path": bank.settings.lake.path})
    defs = str(write_defs(tmp_path, attributes))
    printed = CliRunner().invoke(main, ["explain", defs, "accounts", "1", "--json"])
    assert json.loads(printed.stdout)["set_by"] == {"owner": 1, "balance": 3}
    unknown = CliRunner().invoke(main, ["explain", defs, "accounts", "77"])
    assert (unknown.exit_code, unknown.stderr.split(":")[0]) == (1, "RowNotFound")
    code = f"""
import sys; from cdc_platform.cli import main
main(["explain", {defs!r}, "accounts", "1"], standalone_mode=False)
main(["cuts", {defs!r}], standalone_mode=False)
print("pyspark" in sys.modules)"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = answer.stdout.splitlines()
    assert lines[-1] == "False"
    assert [line.split()[:1] + line.split()[-3:] for line in lines[-3:-1]] == [
        ["1", "4", "yes", "no"],
        ["2", "4", "yes", "no"],
    ]
    as_json = json.loads(CliRunner().invoke(main, ["cuts", defs, "--json"]).stdout)
    assert [(cut["cut"], cut["readable"], cut["pinned"]) for cut in as_json] == [
        (1, True, False),
        (2, True, False),
    ]
    missing = CliRunner().invoke(main, ["cuts", defs, "--pin", "9"])
    text = "CutNotFound: No cut has this number: 9. `cdc-platform cuts DEFS` lists them."
    assert (missing.exit_code, missing.stderr) == (1, f"{text}\nSee {ERROR_PAGES[0]}/CutNotFound.md\n")
