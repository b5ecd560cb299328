"""Checks for missing parts of the log: unread files, records in quarantine, incomplete transactions."""

from collections import Counter
from typing import Final

from pyspark.sql import SparkSession

from cdc_platform.lake.state.quarantine import count_by_reason
from cdc_platform.model.base.timestamps import MICROS_PER_S, to_rfc3339
from cdc_platform.model.stream.files import WaitingTransaction
from cdc_platform.pipeline.checks.check_result import SHOWN, CheckResult, Fact, Scope
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.read_reports import list_unread, newest_reports

WAITS_S: Final = 60.0
"""Time after its commit within which a transaction may still arrive."""

BEHIND_WAIT: Final = (
    ". All files after it wait: repair it, or move it out of the folder if you can do without its events"
)


def check_arrival(pipeline: Pipeline, _spark: SparkSession, _scope: Scope) -> CheckResult:
    """Look for incomplete transactions, which hold back all later ones."""
    now_micros = pipeline.source.clock_micros()
    waiting = (transaction for _, report in newest_reports(pipeline) for transaction in report.waiting)
    late_transactions = [transaction for transaction in waiting if _is_late(transaction, now_micros)]
    return CheckResult(
        not late_transactions,
        "; ".join(_describe_waiting(transaction) for transaction in late_transactions[:SHOWN])
        or "no transaction waits for missing events",
        {"waiting": len(late_transactions)},
    )


def _is_late(transaction: WaitingTransaction, now_micros: int) -> bool:
    since = transaction.since_micros
    return since is None or now_micros - since > WAITS_S * MICROS_PER_S


def _describe_waiting(transaction: WaitingTransaction) -> str:
    since, expected = transaction.since_micros, transaction.expected
    when = f", committed at {to_rfc3339(since)}," if since is not None else ""
    of = f" of {expected:,}" if expected is not None else ", and its END is missing"
    return (
        f"Transaction {transaction.transaction_id}{when} waits: "
        f"{transaction.seen:,} events have arrived{of}. "
        "Later transactions wait for it"
    )


def check_files(pipeline: Pipeline, _spark: SparkSession, _scope: Scope) -> CheckResult:
    """Look for files that could not be read."""
    unread = list_unread(pipeline)
    examples = "; ".join(file.describe() for file in unread[:SHOWN])
    more = f"; and {len(unread) - SHOWN:,} more" if len(unread) > SHOWN else ""
    waiting = BEHIND_WAIT if pipeline.capabilities.comes_in_order else ""
    return CheckResult(
        not unread,
        f"{examples}{more}{waiting}" if unread else "every existing file has been read",
        {"unread_files": len(unread)},
    )


SHOWN_REASONS: Final = 3
SHOWN_TABLES: Final = 10
REASON_LENGTH: Final = 100


def check_quarantine(pipeline: Pipeline, _spark: SparkSession, _scope: Scope) -> CheckResult:
    """Count the open records in quarantine, from all cycles."""
    counts = count_by_reason(pipeline.lake)
    facts: dict[str, Fact] = {"quarantined": counts.total()}
    if not counts:
        return CheckResult(passed=True, summary="no record is in quarantine", facts=facts)
    tables, reasons = Counter[str](), Counter[str]()
    for (table, reason), number in counts.items():
        tables[table or "unknown table"] += number
        reasons[reason.partition("\n")[0][:REASON_LENGTH]] += number
    parts = [
        f"records in quarantine: {counts.total():,} ({_most_common(tables)})",
        *(f"{number:,} with the reason: {reason}" for reason, number in reasons.most_common(SHOWN_REASONS)),
        "`cdc-platform quarantine list` shows them",
    ]
    return CheckResult(passed=False, summary="; ".join(parts), facts=facts)


def _most_common(counts: Counter[str]) -> str:
    examples = [f"{name}: {number:,}" for name, number in counts.most_common(SHOWN_TABLES)]
    return ", ".join([*examples, "..."] if len(counts) > SHOWN_TABLES else examples)
