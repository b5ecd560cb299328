"""Inputs of assets downstream: a table at a cut, in the form of the input's annotation."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cdc_platform.components.loading import load_settings
from cdc_platform.downstream.cut_io_manager import CUT_TAG, CutIOManager, agree
from cdc_platform.errors import SettingError
from cdc_platform.lake.state.cuts import Cut, append_cut
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.read import TablesAtCut
from cdc_platform_tests.commands.invoking import begin
from cdc_platform_tests.yaml_files import write_defs

ROWS = {"id": [1, 2], "owner": ["Ada", None]}
MOMENT = 1_800_000_000_000_000


@pytest.fixture(scope="module")
def defs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a pipeline whose only cut has a table."""
    path = begin(write_defs(tmp_path_factory.mktemp("pipeline")))
    lake = open_pipeline(load_settings(path)).lake
    rows = pa.table(ROWS)
    table = lake.catalog.create_table("bank.accounts", rows.schema)
    table.append(rows)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    append_cut(lake, Cut(1, MOMENT, 1, {"accounts": snapshot.snapshot_id}, MOMENT))
    return path


def load_accounts(defs: Path, annotation: object) -> object:
    """Return what an asset gets of a table that it takes with an annotation."""
    loaded: list[object] = []

    def seen(accounts: object) -> None:
        loaded.append(accounts)

    seen.__annotations__["accounts"] = annotation
    key = dg.AssetKey(["bank", "accounts"])
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


@pytest.mark.parametrize("annotation", [dict, pd.Series, pl.LazyFrame, duckdb.DuckDBPyConnection])
def test_another_annotation_is_refused(defs: Path, annotation: type) -> None:
    """The message names every form that there is."""
    forms = "`pyarrow.Table`, `pandas.DataFrame`, `polars.DataFrame`, `duckdb.DuckDBPyRelation` or"
    with pytest.raises(SettingError, match=f"`accounts` must be a {forms} `TablesAtCut`, not: "):
        load_accounts(defs, annotation)


def test_steps_that_choose_at_the_same_time_agree(tmp_path: Path) -> None:
    """Steps of a run that find no cut chosen, and choose different ones, all read the one logged first."""
    choices = range(1, 9)

    @dg.op
    def nothing() -> None:
        """Do nothing."""

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        job = dg.GraphDefinition("reports", node_defs=[nothing]).to_job()
        run, other = (instance.create_run_for_job(job) for _ in range(2))
        with ThreadPoolExecutor(len(choices)) as steps:
            read = set(steps.map(lambda choice: agree(instance, run, f"{CUT_TAG}/bank", choice), choices))
        assert (len(read), read <= set(choices)) == (1, True)
        # Other pipelines and other runs have cuts of their own.
        assert agree(instance, run, f"{CUT_TAG}/shop", 20) == 20
        assert agree(instance, other, f"{CUT_TAG}/bank", 21) == 21
