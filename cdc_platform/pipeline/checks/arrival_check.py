"""The check for transactions of which a part has not come."""

from typing import Final

from pyspark.sql import SparkSession

from cdc_platform.lake.catalog.lake import RAW
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.read_progress import read_report
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.stream.file_reports import Waiting
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.checks.check_result import SHOWN, CheckResult, Scope
from cdc_platform.pipeline.opened.pipeline import Pipeline

WAITS_S: Final = 60.0
"""Time after its commit within which a transaction may still arrive."""


def check_arrival(pipeline: Pipeline, _spark: SparkSession, _scope: Scope) -> CheckResult:
    """Look for transactions that hold back what comes after them, since more of them is to come."""
    now = pipeline.source.clock_micros()
    waiting = [transaction for transaction in _waiting(pipeline) if _is_late(transaction, now)]
    return CheckResult(
        not waiting,
        "; ".join(_describe_waiting(transaction) for transaction in waiting[:SHOWN])
        or "no transaction waits for the rest of it",
        {"waiting": len(waiting)},
    )


def _waiting(pipeline: Pipeline) -> list[Waiting]:
    """Return the transactions that the newest cycle could not pass on."""
    raw = pipeline.lake.system_table(RAW)
    condition = f"kind = '{RecordKind.FILE.value}' and cycle = {read_mark(raw).cycle}"
    rows = raw.scan(row_filter=condition, selected_fields=("kind", "cycle", "event")).to_arrow().to_pylist()
    return [transaction for row in rows for transaction in read_report(row["event"]).waiting]


def _is_late(waiting: Waiting, now_micros: int) -> bool:
    since = waiting.since_micros
    return since is None or now_micros - since > WAITS_S * 1_000_000


def _describe_waiting(waiting: Waiting) -> str:
    since, expected = waiting.since_micros, waiting.expected
    when = f", committed at {to_rfc3339(since)}," if since is not None else ""
    of = f" of {expected}" if expected is not None else ", and its END has not come"
    return (
        f"Transaction {waiting.transaction_id}{when} waits: {waiting.seen} events have come{of}. "
        "What comes after it waits with it"
    )
