"""A cycle does not touch unchanged tables, for any number of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from cdc_platform.errors import LakeDamaged
from cdc_platform.lake.catalog.lake_settings import CATALOG, LakeSettings
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.cuts import Cut, list_cuts
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.schema.table_options import DELETED, IS_CURRENT, TableOptions, history_name
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform.pipeline.versions.unchanged_tables import find_unchanged
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import (
    ACCOUNTS,
    START,
    TRANSFERS,
    data_change,
    feed,
    found_table,
    make_pipeline,
    rows_of,
    run_steps,
    snapshot_id_of,
    source_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def account(at_micros: int, key: int) -> RawRow:
    """Return the record of a new account."""
    mod = ({"id": str(key)}, {"owner": "a", "balance": "1"})
    return data_change(
        "accounts", ModType.INSERT, mod, at_micros=at_micros, transaction=str(at_micros), schema=ACCOUNTS
    )


def transfer(at_micros: int, key: str) -> RawRow:
    """Return the record of a new transfer."""
    mod = ({"tid": key}, {"amount": "7"})
    return data_change(
        "transfers", ModType.INSERT, mod, at_micros=at_micros, transaction=f"t{at_micros}", schema=TRANSFERS
    )


@pytest.fixture(scope="module")
def pipeline(spark: "SparkSession", session_lake: LakeSettings) -> Pipeline:
    """A pipeline of two tables; each test continues from the state of the previous one."""
    made = make_pipeline(session_lake, (ACCOUNTS, TRANSFERS))
    feed(made, START, account(START, 0), transfer(START, "x"))
    run_steps(made, spark)
    return made


def run_next(
    pipeline: Pipeline, spark: "SparkSession", *, account_key: int = 0, transfer_key: str = ""
) -> Cut:
    """Run the steps of a cycle a microsecond later, with a new account or transfer or without any."""
    at_micros = (read_mark(pipeline.lake.system_table(RAW)).position_micros or START) + 1
    rows = [account(at_micros, account_key)] if account_key else []
    rows += [transfer(at_micros, transfer_key)] if transfer_key else []
    feed(pipeline, at_micros, *rows)
    return run_steps(pipeline, spark)


@contextmanager
def loaded_tables(pipeline: Pipeline) -> Iterator[list[str]]:
    """Yield the names of the tables that are loaded meanwhile, as they are loaded."""
    catalog, names = pipeline.lake.catalog, list[str]()
    load = catalog.load_table

    def note(identifier: str | Identifier) -> Table:
        names.append(Catalog.table_name_from(identifier))
        return load(identifier)

    catalog.load_table = note  # type: ignore[method-assign]  # it still loads
    try:
        yield names
    finally:
        del catalog.load_table  # that of its class is back


def test_a_cycle_loads_no_table_that_nothing_changes(spark: "SparkSession", pipeline: Pipeline) -> None:
    """Of a thousand tables, those without a change cost a cycle no look at the catalog."""
    for key in (1, 2):
        run_next(pipeline, spark, account_key=key)
    before = snapshot_id_of(pipeline, "transfers")
    assert {"transfers"} == find_unchanged(pipeline)

    with loaded_tables(pipeline) as names:
        cut = run_next(pipeline, spark, account_key=3)

    assert {"accounts"} == {"accounts", "transfers"} & {*names}
    assert ({"transfers": before, "accounts": snapshot_id_of(pipeline, "accounts")}, 4) == (
        cut.tables,
        len(rows_of(pipeline, "accounts")),
    )


def test_what_maintenance_and_a_rebuild_make_of_a_table_is_published(
    spark: "SparkSession", pipeline: Pipeline
) -> None:
    """The next cut names the compacted table, and a rebuilt one at once, though nothing has changed it."""
    before = snapshot_id_of(pipeline, "accounts")
    run_next(pipeline, spark)
    assert "accounts" in find_unchanged(pipeline)
    maintain_lake(pipeline, spark, thorough=True)
    compacted = snapshot_id_of(pipeline, "accounts")
    assert compacted != before
    assert compacted == run_next(pipeline, spark).tables["accounts"]

    rebuild_table(pipeline, spark, "transfers")
    cut = publish_cut(pipeline)
    assert cut is not None
    assert snapshot_id_of(pipeline, "transfers") == cut.tables["transfers"]


def move_main(pipeline: Pipeline, spark: "SparkSession", name: str, snapshot_id: int) -> None:
    """Move `main` as a process does that was delayed between its cut and the end of its publication."""
    target = f"{pipeline.name}.{name}"
    spark.sql(f"CALL {CATALOG}.system.set_current_snapshot('{target}', {snapshot_id})")


def test_a_cut_never_names_a_version_before_that_of_the_cut_before(
    spark: "SparkSession", pipeline: Pipeline
) -> None:
    """A delayed process moves `main` back to its own cut, and the next cut still loses nothing."""
    older = list_cuts(pipeline.lake)[-1].tables["accounts"]
    newest = run_next(pipeline, spark, account_key=4).tables["accounts"]

    move_main(pipeline, spark, "accounts", older)
    assert newest == run_next(pipeline, spark, transfer_key="y").tables["accounts"]
    assert {0, 1, 2, 3, 4} == {row["id"] for row in rows_of(pipeline, "accounts")}


def test_what_another_process_makes_of_a_table_is_found_by_turns(
    spark: "SparkSession", pipeline: Pipeline
) -> None:
    """Maintenance looks at some tables in each cycle, and sees compactions and where `main` was moved."""
    run_next(pipeline, spark)
    assert {"accounts", "transfers"} == find_unchanged(pipeline)
    maintain_lake(replace(pipeline), spark, thorough=True)
    compacted = snapshot_id_of(pipeline, "accounts")

    maintain_lake(pipeline, spark)
    assert compacted == run_next(pipeline, spark).tables["accounts"]
    run_next(pipeline, spark)
    assert "accounts" in find_unchanged(pipeline)

    parent = found_table(pipeline, "accounts").metadata.snapshot_by_id(compacted)
    assert parent is not None
    assert parent.parent_snapshot_id is not None
    move_main(pipeline, spark, "accounts", parent.parent_snapshot_id)
    maintain_lake(pipeline, spark)
    assert compacted == run_next(pipeline, spark).tables["accounts"]
    assert compacted == snapshot_id_of(pipeline, "accounts")


def test_a_table_is_looked_at_again_once_something_is_new(spark: "SparkSession", pipeline: Pipeline) -> None:
    """A change, and a column that the source has added without a change, reach a table left alone before."""
    run_next(pipeline, spark)
    assert "transfers" in find_unchanged(pipeline)
    run_next(pipeline, spark, transfer_key="z")
    assert {"x", "y", "z"} == {row["tid"] for row in rows_of(pipeline, "transfers")}

    run_next(pipeline, spark)
    assert "transfers" in find_unchanged(pipeline)

    wider = table("transfers", {"tid": "STRING(36)"}, {"amount": "INT64", "note": "STRING(MAX)"})
    source_of(pipeline).schemas = (ACCOUNTS, wider)
    run_next(pipeline, spark)
    assert {"tid", "amount", "note"} == rows_of(pipeline, "transfers")[0].keys()


@pytest.mark.parametrize("is_soft", [False, True])
def test_a_table_that_was_recreated_begins_empty_before_its_first_change(
    spark: "SparkSession", session_lake: LakeSettings, *, is_soft: bool
) -> None:
    """The content of the dropped table is removed with the cut that has the new one, and stays removed."""
    options = {"transfers": TableOptions(history=True, soft_delete=is_soft)}
    pipeline = make_pipeline(session_lake, (ACCOUNTS, TRANSFERS), options=options)
    feed(pipeline, START, account(START, 1), transfer(START, "x"))
    run_steps(pipeline, spark)
    for number, schemas in enumerate([(ACCOUNTS,), (ACCOUNTS, TRANSFERS)], start=1):
        source_of(pipeline).schemas = schemas
        feed(pipeline, START + number)
        run_steps(pipeline, spark)
    assert [row["tid"] for row in rows_of(pipeline, "transfers") if not row.get(DELETED)] == []
    feed(pipeline, START + 3, transfer(START + 3, "y"))
    run_steps(pipeline, spark)
    assert [row["tid"] for row in rows_of(pipeline, "transfers") if not row.get(DELETED)] == ["y"]
    versions = rows_of(pipeline, history_name("transfers"))
    assert {("x", False), ("y", True)} == {(row["tid"], row[IS_CURRENT]) for row in versions}
    feed(pipeline, START + 4)
    run_steps(pipeline, spark)
    assert {"accounts", "transfers", history_name("transfers")} == find_unchanged(pipeline)


def test_a_table_that_nothing_changes_is_missed_when_another_program_replaces_it(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """An empty table of its name is not published in its place, though no cycle loads it."""
    pipeline = make_pipeline(session_lake, (ACCOUNTS, TRANSFERS))
    feed(pipeline, START, account(START, 0), transfer(START, "x"))
    run_steps(pipeline, spark)
    run_next(pipeline, spark, account_key=1)
    assert "transfers" in find_unchanged(pipeline)
    cuts, schema = list_cuts(pipeline.lake), found_table(pipeline, "transfers").schema()
    pipeline.lake.catalog.drop_table(f"{pipeline.name}.transfers")
    pipeline.lake.catalog.create_table(f"{pipeline.name}.transfers", schema)

    for key in (2, 3):
        with pytest.raises(LakeDamaged, match=r"table `transfers`: another program has .*`rebuild: true`"):
            run_next(pipeline, spark, account_key=key)
    assert cuts == list_cuts(pipeline.lake)

    rebuild_table(pipeline, spark, "transfers")
    run_next(pipeline, spark, account_key=4)
    assert (len(rows_of(pipeline, "transfers")), len(rows_of(pipeline, "accounts"))) == (1, 5)
