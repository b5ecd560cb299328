"""Inputs of assets downstream: a table at a cut, in the form of the input's annotation."""

from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cdc_platform.components.loading import load_settings
from cdc_platform.downstream.cut_io_manager import CutIOManager
from cdc_platform.errors import SettingError
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.state.cuts import Cut, append_cut
from cdc_platform.model.base.names import lake_table_name
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.read import TablesAtCut
from cdc_platform_tests.commands.invoking import begin
from cdc_platform_tests.yaml_files import write_defs

ROWS = {"id": [1, 2], "owner": ["Ada", None]}
MOMENT = 1_800_000_000_000_000


@pytest.fixture(scope="module")
def defs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a pipeline whose only cut has tables of equal rows."""
    path = begin(write_defs(tmp_path_factory.mktemp("pipeline")))
    lake = open_pipeline(load_settings(path)).lake
    rows = pa.table(ROWS)
    snapshots = {}
    for name in ("accounts", 'system."a table"', "a.b.c"):
        table = lake.catalog.create_table(f"bank.{lake_table_name(name)}", rows.schema)
        table.append(rows)
        snapshots[name] = table.metadata.snapshots[-1].snapshot_id
    append_cut(lake, Cut(1, MOMENT, 1, snapshots, MOMENT))
    return path


def load_accounts(defs: Path, annotation: object, table: str = "accounts") -> object:
    """Return what an asset gets of a table that it takes with an annotation."""
    loaded: list[object] = []

    def seen(accounts: object) -> None:
        loaded.append(accounts)

    seen.__annotations__["accounts"] = annotation
    key = dg.AssetKey(["bank", lake_table_name(table)])
    asset = dg.asset(ins={"accounts": dg.AssetIn(key, input_manager_key="cut")})(seen)
    resources = {"cut": CutIOManager(defs=str(defs))}
    dg.materialize([dg.AssetSpec(key), asset], resources=resources, selection=[asset])
    return loaded[0]


def test_an_annotation_chooses_the_form(defs: Path) -> None:
    """Rows come as a table of Arrow, a frame of Polars or pandas, a relation, or with all tables of a cut."""
    arrow, polars = load_accounts(defs, pa.Table), load_accounts(defs, pl.DataFrame)
    assert isinstance(arrow, pa.Table)
    assert arrow.to_pydict() == ROWS
    assert isinstance(polars, pl.DataFrame)
    assert polars.to_dict(as_series=False) == ROWS
    pandas = load_accounts(defs, pd.DataFrame)
    assert isinstance(pandas, pd.DataFrame)
    pd.testing.assert_frame_equal(pd.DataFrame(ROWS), pandas)
    relation = load_accounts(defs, duckdb.DuckDBPyRelation)
    assert isinstance(relation, duckdb.DuckDBPyRelation)
    assert list(zip(*ROWS.values(), strict=True)) == relation.fetchall()
    assert isinstance(load_accounts(defs, TablesAtCut), TablesAtCut)


def test_a_relation_may_be_of_a_table_of_any_name(defs: Path) -> None:
    """DuckDB finds it, whatever its schema and its characters are."""
    for name in ('system."a table"', "a.b.c"):
        relation = load_accounts(defs, duckdb.DuckDBPyRelation, name)
        assert isinstance(relation, duckdb.DuckDBPyRelation)
        assert list(zip(*ROWS.values(), strict=True)) == relation.fetchall()


@pytest.mark.parametrize("annotation", [dict, pd.Series, pl.LazyFrame, duckdb.DuckDBPyConnection])
def test_another_annotation_is_refused(defs: Path, annotation: type) -> None:
    """The message names every form that there is."""
    forms = "`pyarrow.Table`, `pandas.DataFrame`, `polars.DataFrame`, `duckdb.DuckDBPyRelation` or"
    with pytest.raises(SettingError, match=f"`accounts` must be a {forms} `TablesAtCut`, not: "):
        load_accounts(defs, annotation)


@pytest.fixture
def three_cuts(tmp_path: Path) -> Path:
    """The file of a pipeline with three cuts, of one, two and three rows."""
    path = begin(write_defs(tmp_path))
    lake = open_pipeline(load_settings(path)).lake
    lake.catalog.create_table("bank.accounts", pa.schema([("id", pa.int64())]))
    for number in (1, 2, 3):
        publish_row(lake, number)
    return path


def publish_row(lake: Lake, number: int) -> None:
    """Publish a cut that has one row more than the last one."""
    table = lake.table("accounts")
    assert table is not None
    table.append(pa.table({"id": [number]}))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    append_cut(lake, Cut(number, MOMENT, number, {"accounts": snapshot.snapshot_id}, clock_micros()))


def run_with_cut(
    defs: Path, tags: Mapping[str, str] | None = None, *, waits: bool
) -> dg.ExecuteInProcessResult:
    """Return a run that publishes the second cut, and reads a table after that or before."""
    table, cut = dg.AssetKey(["bank", "accounts"]), dg.AssetKey(["bank__cdc", "cut"])

    @dg.asset(key=cut, deps=[] if waits else ["count"])
    def publish() -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"Cut": "2"})

    @dg.asset(ins={"accounts": dg.AssetIn(table, input_manager_key="cut")}, deps=[cut] if waits else [])
    def count(accounts: pa.Table) -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"rows": len(accounts)})

    return dg.materialize(
        [dg.AssetSpec(table), publish, count],
        resources={"cut": CutIOManager(defs=str(defs))},
        selection=[publish, count],
        tags=tags,
        raise_on_error=False,
    )


def test_a_run_reads_the_cut_of_its_beginning(three_cuts: Path) -> None:
    """What another run publishes before the first input is loaded does not change the cut."""
    table = dg.AssetKey(["bank", "accounts"])

    @dg.asset
    def wait() -> None:
        publish_row(open_pipeline(load_settings(three_cuts)).lake, 4)

    @dg.asset(ins={"accounts": dg.AssetIn(table, input_manager_key="cut")}, deps=[wait])
    def count(accounts: pa.Table) -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"rows": len(accounts)})

    resources = {"cut": CutIOManager(defs=str(three_cuts))}
    result = dg.materialize([dg.AssetSpec(table), wait, count], resources=resources, selection=[wait, count])
    (made,) = result.asset_materializations_for_node("count")
    assert made.metadata["rows"].value == 3


def test_a_run_that_publishes_a_cut_reads_it(three_cuts: Path) -> None:
    """It reads the first cut that it has published, even if newer ones were published meanwhile."""
    result = run_with_cut(three_cuts, waits=True)
    (made,) = result.asset_materializations_for_node("count")
    assert made.metadata["rows"].value == 2


def test_a_run_that_publishes_a_cut_again_reads_that(three_cuts: Path) -> None:
    """The cut of the run that it repeats, whose tags it has, is older than what it makes itself."""
    result = run_with_cut(three_cuts, {"cdc_platform/cut/bank": "1"}, waits=True)
    (made,) = result.asset_materializations_for_node("count")
    assert made.metadata["rows"].value == 2


def test_a_reader_waits_for_the_cut_of_its_run(three_cuts: Path) -> None:
    """A step that comes before the publication fails; the error says on what its asset has to depend."""
    result = run_with_cut(three_cuts, waits=False)
    errors = [str(event.step_failure_data.error) for event in result.get_step_failure_events()]
    assert any("CutNotFound" in error and "['bank__cdc', 'cut']" in error for error in errors)
