"""dbt models on one cut; dbt may live in its own environment."""

import json
import os
import subprocess
from pathlib import Path

import dagster as dg
import duckdb

from cdc_platform.read import TablesAtCut
from on_top.defs.reports import HOURLY, REPORTS
from on_top.defs.shop import CUSTOMERS, CUT, ORDERS

PROJECT = Path(__file__).parents[3] / "dbt"
DBT = os.environ.get("DBT", "dbt")
"""The program."""


@dg.asset(
    key=["dbt", "customer_spending"],
    ins={"shop": dg.AssetIn(ORDERS, input_manager_key="cut")},
    deps=[CUSTOMERS, CUT],
    kinds={"dbt", "duckdb"},
    automation_condition=HOURLY,
    group_name="dbt",
)
def customer_spending(shop: TablesAtCut) -> dg.MaterializeResult[None]:
    """What each customer has ordered so far, built and tested by dbt."""
    warehouse = (REPORTS / "warehouse.duckdb").absolute()
    warehouse.parent.mkdir(parents=True, exist_ok=True)
    write_cut(shop, warehouse)
    ended = subprocess.run(  # noqa: S603  a program of our own choice
        [DBT, "build", "--profiles-dir", str(PROJECT), "--target-path", str(warehouse.parent / "dbt")],
        cwd=PROJECT,
        env={**os.environ, "WAREHOUSE": str(warehouse), "DBT_LOG_PATH": str(warehouse.parent / "dbt")},
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    if ended.returncode != 0:
        raise dg.Failure(f"`dbt build` failed:\n{ended.stdout}")
    results = json.loads((warehouse.parent / "dbt" / "run_results.json").read_text(encoding="utf-8"))
    statuses = [result["status"] for result in results["results"]]
    return dg.MaterializeResult(metadata={"Cut": str(shop.cut.cut), "Tests passed": statuses.count("pass")})


def write_cut(shop: TablesAtCut, warehouse: Path) -> None:
    """Write the tables of a cut into the schema `shop` of a DuckDB file, in one transaction."""
    with duckdb.connect(str(warehouse)) as connection:
        connection.execute("BEGIN; CREATE SCHEMA IF NOT EXISTS shop")
        for name in shop.names:
            rows = shop.arrow(name)
            connection.register("rows", rows)
            connection.execute(f'CREATE OR REPLACE TABLE shop."{name}" AS SELECT * FROM rows')
        connection.execute("COMMIT")


dbt_job = dg.define_asset_job("dbt", selection=dg.AssetSelection.groups("dbt"))
