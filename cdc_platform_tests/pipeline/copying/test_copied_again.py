"""Tables that a user lets the pipeline copy again, with their histories."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from cdc_platform.errors import CutNotFound
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.copies import load_plans
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.copying.copy import copy_tables
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.attempts import PARALLEL_TABLES
from cdc_platform.sources.spanner.copying.columns import table_arrow_schema
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.pipeline.bank import SECOND
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import (
    ACCOUNTS,
    CHECKS,
    START,
    TRANSFERS,
    data_change,
    feed,
    make_pipeline,
    rows_of,
    run_steps,
    source_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

CREATED = START + SECOND + SECOND // 4
"""When the source creates the table, unless it has it from the beginning."""
FIRST = START + SECOND + SECOND // 2
"""When its first row is there."""
RECREATED = START + 2 * SECOND
"""When the source drops the table and makes it again with the same key, which nothing shows."""


def rows_at(table: str, micros: int, *, is_created: bool) -> Iterator[pa.RecordBatch]:
    """Return the rows of the source."""
    number = 9 if micros >= RECREATED else 1
    rows = [{"id": number, "owner": f"owner {number}", "balance": 100}]
    if table != "accounts" or (is_created and micros < FIRST):
        rows = []
    yield pa.RecordBatch.from_pylist(rows, table_arrow_schema(ACCOUNTS if table == "accounts" else TRANSFERS))


def read_schema(micros: int, *, is_created: bool) -> SchemaRead:
    """Return the schema of the source."""
    tables = (TRANSFERS,) if is_created and micros < CREATED else (ACCOUNTS, TRANSFERS)
    return SchemaRead(micros, tables, {}, {})


def open_again(
    lake: LakeSettings, name: str | None = None, *, is_created: bool, leaves_out: bool = False
) -> Pipeline:
    """Return the pipeline, with or without accounts and their history."""
    is_early = is_created and name is None
    options = {} if leaves_out or is_early else {"accounts": TableOptions(history=True)}
    tables = (TRANSFERS,) if is_early else (ACCOUNTS, TRANSFERS)
    pipeline = make_pipeline(lake, tables, name=name, copy_chunk_rows=8, options=options)
    source_of(pipeline).rows_at = partial(rows_at, is_created=is_created)
    source_of(pipeline).schema_at = partial(read_schema, is_created=is_created)
    settings = replace(pipeline.settings, tables=("transfers",) if leaves_out else None)
    return replace(pipeline, settings=settings)


def opening(key: str, at_micros: int) -> RawRow:
    """Return the record of a new account."""
    mod: Any = ({"id": key}, {"owner": f"owner {key}", "balance": "100"})
    return data_change("accounts", ModType.INSERT, mod, at_micros=at_micros, transaction=f"open {key}")


@pytest.mark.parametrize("is_created", [False, True])
def test_a_table_is_copied_at_the_present_and_its_history_begins_again(
    spark: "SparkSession", session_lake: LakeSettings, *, is_created: bool
) -> None:
    """The log, or the version of the first copy, which the source still has, made the table wrong."""
    pipeline = open_again(session_lake, is_created=is_created)

    def cycle(number: int, *records: RawRow) -> None:
        source_of(pipeline).now_micros = START + number * SECOND
        copy_tables(pipeline, spark)
        feed(pipeline, START + number * SECOND + 1000, *records)
        run_steps(pipeline, spark)

    cycle(1)
    cycle(2, *([opening("1", FIRST)] if is_created else []), opening("9", RECREATED))
    assert is_created == pipeline.schema_history.tables["accounts"].is_created
    before = newest_cut(pipeline.lake)
    assert before is not None
    assert [row["id"] for row in rows_of(pipeline, "accounts")] == [1, 9]
    pipeline = open_again(session_lake, pipeline.name, is_created=is_created, leaves_out=True)
    cycle(3)
    pipeline.lake.catalog.drop_table(f"{pipeline.name}.accounts")
    pipeline = open_again(session_lake, pipeline.name, is_created=is_created)
    cycle(4)
    cycle(5, opening("8", START + 5 * SECOND))
    assert [row["id"] for row in rows_of(pipeline, "accounts")] == [8, 9]
    current = [row["id"] for row in rows_of(pipeline, "accounts__history") if row["is_current"]]
    assert current == [8, 9]
    checks = [check for check in CHECKS if check.table_name and check.name != "tables_equal_source"]
    results = {check.name: check.run(pipeline, spark, EVERYTHING) for check in checks}
    assert {name: result.summary for name, result in results.items() if not result.passed} == {}
    with pytest.raises(CutNotFound, match="no snapshot of cut" if is_created else "copied again"):
        rebuild_table(pipeline, spark, "accounts__history", before.cut)


def test_a_copy_that_waits_for_its_turn_keeps_its_plan(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A step begins few copies at a time; each plan asks the source for the table's chunks, and is stored."""
    tables = [table(f"t{number}", {"id": "INT64"}, {}) for number in range(2 * PARALLEL_TABLES + 1)]
    pipeline = make_pipeline(session_lake, tables, copy_chunk_rows=8)
    source = source_of(pipeline)
    source.now_micros = START + SECOND
    rows = pa.RecordBatch.from_pylist([{"id": 1}], table_arrow_schema(tables[0]))
    source.rows_at = lambda _table, _micros: iter([rows])
    feed(pipeline, START)
    while copy_tables(pipeline, spark).is_pending:
        source.now_micros += SECOND
    assert {1} == {plan.number for plan in load_plans(pipeline.lake).values()}
