"""The check for records in quarantine: their changes are in no table."""

from collections import Counter
from typing import Final

from pyspark.sql import SparkSession

from cdc_platform.lake.state.quarantine import count_by_reason
from cdc_platform.pipeline.checks.check_result import CheckResult, Fact, Scope
from cdc_platform.pipeline.opened.pipeline import Pipeline

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
        f"records in quarantine: {counts.total()} ({_listed(tables, SHOWN_TABLES)})",
        *(f"{number} with the reason: {reason}" for reason, number in reasons.most_common(SHOWN_REASONS)),
        "`cdc-platform quarantine list` shows them",
    ]
    return CheckResult(passed=False, summary="; ".join(parts), facts=facts)


def _listed(counts: Counter[str], most: int) -> str:
    shown = [f"{name}: {number}" for name, number in counts.most_common(most)]
    return ", ".join([*shown, "..."] if len(counts) > most else shown)
