"""Checks that have to do with the source as it is defined: equality with it, and changes of its schema."""

from collections import Counter

from pyspark.sql import SparkSession

from cdc_platform.lake.catalog.lake import SCHEMA
from cdc_platform.lake.state.copies import load_plans
from cdc_platform.lake.state.cuts import Cut, newest_cut
from cdc_platform.lake.state.quarantine import count_quarantined, describe_next_step
from cdc_platform.lake.state.schema_history import list_schema_events
from cdc_platform.model.base.stored_texts import understanding
from cdc_platform.model.schema.schema_events import describe_event
from cdc_platform.pipeline.checks.check_result import CheckResult, Fact, Scope
from cdc_platform.pipeline.checks.reconciliation import Proof, prove_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline


def check_source(pipeline: Pipeline, _spark: SparkSession, scope: Scope) -> CheckResult:
    """Compare every table at the newest cut with a strong read of the source at its position."""
    cut = newest_cut(pipeline.lake)
    if cut is None:
        return without_cut(pipeline)
    proofs, unwatched = prove_tables(pipeline, cut, scope.covers)
    facts: dict[str, Fact] = {"cut": cut.cut}
    for proof in proofs:
        facts[f"{proof.table}_source_rows"] = proof.source.rows
        facts[f"{proof.table}_lake_rows"] = proof.lake.rows
    facts["quarantined"] = count_quarantined(pipeline.lake)
    facts["columns_of_unknown_type"] = sum(len(table.unknown_columns) for table in pipeline.tables)
    equal = [proof for proof in proofs if proof.is_equal]
    sentences = [describe_proof(proof) for proof in proofs if not proof.is_equal]
    rows = sum(proof.lake.rows for proof in equal)
    sentences += [f"cut {cut.cut}: {rows} rows in {len(equal)} tables equal the source"] if equal else []
    sentences += [
        f"not compared: {', '.join(proof.uncompared)} of `{proof.table}`"
        for proof in proofs
        if proof.uncompared
    ]
    sentences += [f"`{name}` is not watched there, so its last state was not compared" for name in unwatched]
    if facts["quarantined"] and len(equal) < len(proofs):
        sentences.append(f"{facts['quarantined']} records in quarantine are missing from the tables")
    tables = {proof.table: _judge(proof, cut) for proof in proofs}
    return CheckResult(all(proof.holds for proof in proofs), "; ".join(sentences), facts, tables)


def _judge(proof: Proof, cut: Cut) -> CheckResult:
    """Return the result of one table."""
    equal = f"cut {cut.cut}: {proof.lake.rows} rows equal the source"
    sentences = [equal if proof.is_equal else describe_proof(proof)]
    if proof.uncompared:
        sentences.append(f"not compared: {', '.join(proof.uncompared)}")
    facts: dict[str, Fact] = {"source_rows": proof.source.rows, "lake_rows": proof.lake.rows}
    return CheckResult(proof.holds, "; ".join(sentences), facts)


def without_cut(pipeline: Pipeline) -> CheckResult:
    """Return the result before the first cut: it passes while tables are copied, and fails otherwise."""
    copying = len(load_plans(pipeline.lake))
    if copying:
        return CheckResult(True, f"nothing is published yet, {copying} tables are being copied", {})
    summary = f"there is no cut yet to compare: {describe_next_step(pipeline.lake)}"
    return CheckResult(passed=False, summary=summary, facts={})


def describe_proof(proof: Proof) -> str:
    """Return a sentence on how a table differs from the source, and whether it has to."""
    differences = proof.differences
    counts = (
        f"{differences.missing} rows missing, {differences.surplus} too many, {differences.changed} different"
    )
    if proof.holds:
        reasons = ", ".join(proof.exclusion.reasons)
        return f"`{proof.table}` differs as expected, since {reasons}: {counts}"
    return f"`{proof.table}` differs at {', '.join(differences.keys)}: {counts}"


def check_schema(pipeline: Pipeline, _spark: SparkSession, scope: Scope) -> CheckResult:
    """Report changes of the source's schema, and what keeps tables from equalling the source."""
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
