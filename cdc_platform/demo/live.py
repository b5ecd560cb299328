"""Live view of the demo's lake as readers see it: pyiceberg alone, no Spark."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow.compute as pc

from cdc_platform.demo.home import ACCOUNTS
from cdc_platform.lake.state.cuts import Cut, list_cuts
from cdc_platform.model.base.progress import Progress
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.pipeline.on_demand.status import read_status
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.printing.lines import print_line
from cdc_platform.printing.progress_display import show_progress


@dataclass(frozen=True)
class Balances:
    """The accounts at one cut."""

    cut: Cut
    accounts: int
    total: int


def balances_at(pipeline: Pipeline, cut: Cut) -> Balances | None:
    """Return the accounts at a cut; None if its snapshot has expired."""
    table = pipeline.lake.table(ACCOUNTS)
    snapshot_id = cut.tables.get(ACCOUNTS, -1)
    if table is None or table.metadata.snapshot_by_id(snapshot_id) is None:
        return None
    balances = table.scan(snapshot_id=snapshot_id, selected_fields=("balance",)).to_arrow()["balance"]
    return Balances(cut, len(balances), int(pc.sum(balances).as_py() or 0))


def balances_at_all_cuts(pipeline: Pipeline) -> Iterator[Balances]:
    """Yield the accounts at every cut that can still be read, oldest first."""
    for cut in list_cuts(pipeline.lake):
        balances = balances_at(pipeline, cut)
        if balances is not None:
            yield balances


@contextmanager
def live_view(pipeline: Pipeline) -> Iterator[Callable[[], None]]:
    """Yield a function that shows the current lake: in place on a terminal, on a new line elsewhere."""
    if not sys.stderr.isatty():
        with show_progress(pipeline.progress):
            yield lambda: print_line(describe_live(pipeline))
        return
    # Steps that start and end within a second would move the line.
    progress = Progress()
    with show_progress(progress), progress.step("bank") as step:

        def show() -> None:
            step.note = describe_live(pipeline)

        yield show


def describe_live(pipeline: Pipeline) -> str:
    """Return one line with the state that readers see now."""
    status = read_status(pipeline)
    if status.watermark_micros is None:
        return f"{time.strftime('%H:%M:%S')}  waiting for the first cycle"
    lag = f"{status.lag_s:.1f}" if status.lag_s is not None else "-"
    rows = ", ".join(f"{name} {table.rows or 0:,}" for name, table in status.tables.items())
    balances = balances_at(pipeline, status.cut) if status.cut is not None else None
    return (
        f"{time.strftime('%H:%M:%S')}  watermark {to_rfc3339(status.watermark_micros)[11:23]}  "
        f"lag {lag:>5} s  partitions {len(status.live_partitions)} live, "
        f"{status.finished_partitions} finished  cut {status.cut.cut if status.cut is not None else '-'}  "
        f"rows {rows or '-'}  sum of balances {f'{balances.total:,}' if balances is not None else '-'}"
    )
