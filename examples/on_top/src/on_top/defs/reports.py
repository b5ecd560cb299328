"""Two reports on the shop, one in Python and one in SQL; a run makes both of the same cut."""

import os
from pathlib import Path

import dagster as dg
import polars as pl

from cdc_platform.read import TablesAtCut
from on_top.defs.shop import CUSTOMERS, CUT, ORDERS

REPORTS = Path(os.environ.get("REPORTS", "reports"))
"""Folder of the reports."""

# Each cut makes them Unsynced; the condition makes them again once an hour, if there is a new one.
HOURLY = dg.AutomationCondition.on_cron("@hourly")


@dg.asset(
    ins={
        "customers": dg.AssetIn(CUSTOMERS, input_manager_key="cut"),
        "orders": dg.AssetIn(ORDERS, input_manager_key="cut"),
    },
    deps=[CUT],
    kinds={"polars", "parquet"},
    automation_condition=HOURLY,
    group_name="reports",
)
def spending(customers: pl.DataFrame, orders: pl.DataFrame) -> dg.MaterializeResult[None]:
    """What each customer has ordered so far."""
    totals = orders.group_by("customer_id").agg(pl.len().alias("orders"), pl.sum("total"))
    report = customers.join(totals, left_on="id", right_on="customer_id", how="left").sort("id")
    rows = report.select("id", "name", pl.col("orders").fill_null(0), pl.col("total").fill_null(0))
    REPORTS.mkdir(parents=True, exist_ok=True)
    rows.write_parquet(REPORTS / "spending.parquet")
    return dg.MaterializeResult(metadata={"dagster/row_count": rows.height})


BY_STATUS = """
    COPY (
        SELECT status, count(*) AS orders, sum(total) AS total, count(DISTINCT c.id) AS customers
        FROM orders AS o JOIN customers AS c ON c.id = o.customer_id
        GROUP BY status ORDER BY status
    ) TO '{path}' (HEADER)
"""


@dg.asset(
    ins={"shop": dg.AssetIn(ORDERS, input_manager_key="cut")},
    deps=[CUSTOMERS, CUT],
    kinds={"duckdb", "csv"},
    automation_condition=HOURLY,
    group_name="reports",
)
def by_status(shop: TablesAtCut) -> dg.MaterializeResult[None]:
    """Orders by their status, in SQL over all tables of the cut."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    path = REPORTS / "by_status.csv"
    shop.duckdb().execute(BY_STATUS.format(path=path))
    return dg.MaterializeResult(metadata={"Cut": str(shop.cut.cut)})


@dg.asset_check(asset="spending", blocking=True)
def every_customer_once() -> dg.AssetCheckResult:
    """The report has one row for each customer."""
    ids = pl.read_parquet(REPORTS / "spending.parquet")["id"]
    return dg.AssetCheckResult(passed=ids.is_unique().all(), metadata={"Customers": len(ids)})


reports = dg.define_asset_job("reports", selection=dg.AssetSelection.groups("reports"))
