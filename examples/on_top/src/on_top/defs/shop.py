"""The pipeline upstream: its tables and its cut, which another code location makes."""

import os
from pathlib import Path

import dagster as dg

from cdc_platform.downstream.cut_io_manager import CutIOManager

SHOP_DEFS = os.environ.get("SHOP_DEFS", str(Path(__file__).parents[4] / "datastream" / "defs.yaml"))
"""The YAML file of the pipeline."""

CUSTOMERS, ORDERS = dg.AssetKey(["shop", "customers"]), dg.AssetKey(["shop", "orders"])
CUT = dg.AssetKey(["shop__cdc", "cut"])


@dg.definitions
def shop() -> dg.Definitions:
    """Return what reads the tables; where both locations run, Dagster joins the graphs by the keys."""
    upstream = [dg.AssetSpec(key) for key in (CUSTOMERS, ORDERS, CUT)]
    return dg.Definitions(
        assets=upstream,
        resources={"cut": CutIOManager(defs=SHOP_DEFS)},
        # The reports are small: a process for each would take longer than they do.
        executor=dg.in_process_executor,
    )
