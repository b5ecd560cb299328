"""Checks against the source: equality of tables with it, and changes of its schema."""

from collections import Counter

from pyspark.sql import SparkSession

from cdc_platform.lake.state.copies import load_plans
from cdc_platform.lake.state.cuts import Cut, newest_cut
from cdc_platform.lake.state.quarantine import count_quarantined_records, describe_next_step
from cdc_platform.lake.state.schema_history import list_schema_events
from cdc_platform.model.base.stored_names import SCHEMA
from cdc_platform.model.base.stored_texts import understanding
from cdc_platform.model.schema.schema_events import describe_event
from cdc_platform.pipeline.checks.check_result import CheckResult, Fact, Scope
from cdc_platform.pipeline.checks.reconciliation import Reconciliation, reconcile_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline


def check_source(pipeline: Pipeline, _spark: SparkSession, scope: Scope) -> CheckResult:
    """Compare every table at the newest cut with a strong read of the source at its position."""
    cut = newest_cut(pipeline.lake)
    if cut is None:
        return without_cut(pipeline)
    reconciliations, names = reconcile_tables(pipeline, cut, scope.covers)
    open_records = count_quarantined_records(pipeline.lake)
    facts: dict[str, Fact] = {
        "cut": str(cut.cut),
        "source_rows": sum(reconciliation.source.rows for reconciliation in reconciliations),
        "lake_rows": sum(reconciliation.lake.rows for reconciliation in reconciliations),
        "quarantined": open_records,
        "columns_of_unknown_type": sum(len(table.unknown_columns) for table in pipeline.tables),
    }
    equal = [reconciliation for reconciliation in reconciliations if reconciliation.is_equal]
    sentences = [
        describe_reconciliation(reconciliation)
        for reconciliation in reconciliations
        if not reconciliation.is_equal
    ]
    rows = sum(reconciliation.lake.rows for reconciliation in equal)
    sentences += [f"cut {cut.cut}: {rows:,} rows in {len(equal):,} tables equal the source"] if equal else []
    sentences += [
        f"not compared: {', '.join(reconciliation.uncompared)} of `{reconciliation.table}`"
        for reconciliation in reconciliations
        if reconciliation.uncompared
    ]
    sentences += [f"`{name}` is not watched there, so its last state was not compared" for name in names]
    if open_records and len(equal) < len(reconciliations):
        sentences.append(f"{open_records:,} records in quarantine are missing from the tables")
    tables = {reconciliation.table: _judge(reconciliation, cut) for reconciliation in reconciliations}
    return CheckResult(
        all(reconciliation.holds for reconciliation in reconciliations), "; ".join(sentences), facts, tables
    )


def _judge(reconciliation: Reconciliation, cut: Cut) -> CheckResult:
    """Return the result of one table."""
    equal = f"cut {cut.cut}: {reconciliation.lake.rows:,} rows equal the source"
    sentences = [equal if reconciliation.is_equal else describe_reconciliation(reconciliation)]
    if reconciliation.uncompared:
        sentences.append(f"not compared: {', '.join(reconciliation.uncompared)}")
    facts: dict[str, Fact] = {
        "source_rows": reconciliation.source.rows,
        "lake_rows": reconciliation.lake.rows,
    }
    return CheckResult(reconciliation.holds, "; ".join(sentences), facts)


def without_cut(pipeline: Pipeline) -> CheckResult:
    """Return the result before the first cut: it passes during initial copies, and fails otherwise."""
    copying = len(load_plans(pipeline.lake))
    if copying:
        return CheckResult(True, f"nothing is published yet, {copying:,} tables are being copied", {})
    summary = f"there is no cut yet to compare: {describe_next_step(pipeline.lake)}"
    return CheckResult(passed=False, summary=summary, facts={})


def describe_reconciliation(reconciliation: Reconciliation) -> str:
    """Return a sentence on the differences of a table, and on whether they are expected."""
    differences = reconciliation.differences
    counts = (
        f"{differences.missing:,} rows missing, {differences.surplus:,} too many, "
        f"{differences.changed:,} different"
    )
    if reconciliation.holds:
        reasons = ", ".join(reconciliation.exclusion.reasons)
        return f"`{reconciliation.table}` differs as expected, since {reasons}: {counts}"
    return f"`{reconciliation.table}` differs at {', '.join(differences.keys)}: {counts}"


def check_schema(pipeline: Pipeline, _spark: SparkSession, scope: Scope) -> CheckResult:
    """Report changes of the source's schema, and reasons why tables cannot equal the source."""
    events = [
        event
        for event in list_schema_events(pipeline.lake)
        if event.since_micros is not None and event.cycle > scope.after_cycle
    ]
    findings = pipeline.findings(pipeline.schema_history)
    with understanding(SCHEMA):
        sentences = [describe_event(event) for event in events] + list(findings)
    counts = Counter(event.change.value for event in events)
    facts: dict[str, Fact] = {"changes": len(events), "findings": len(findings), **counts}
    return CheckResult(
        not sentences, "; ".join(sentences) or "no change of the schema, nothing is left out", facts
    )
