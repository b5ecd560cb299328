"""Checks that read whole tables at the newest cut."""

from collections.abc import Mapping
from dataclasses import asdict, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.lake.state.cuts import Cut, newest_cut
from cdc_platform.lake.state.schema_history import load_history_at
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.table_options import history_name, keeps_deleted, source_schema, stored_schema
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.checks.check_result import CheckResult, Scope
from cdc_platform.pipeline.checks.history_check import HistoryFaults, count_differing, find_faults
from cdc_platform.pipeline.checks.source_checks import without_cut
from cdc_platform.pipeline.merging.soft_delete import stored_at
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.change_source import find_beginning, read_changes, trusts_inserts
from cdc_platform.pipeline.versions.lake_frames import read_log, read_table
from cdc_platform.spark.frames.columns import col
from cdc_platform.spark.tables.net_changes import ACTION, APPEND, UPDATE, compute_net_changes
from cdc_platform.spark.tables.soft_delete import compute_soft_net_changes
from cdc_platform.spark.tables.typed_columns import unfit_values


def check_tables_equal_log(pipeline: Pipeline, spark: SparkSession, scope: Scope) -> CheckResult:
    """Compare every table at the newest cut with the net changes of the whole log up to it."""
    cut = newest_cut(pipeline.lake)
    if cut is None:
        return without_cut(pipeline)
    log = read_log(pipeline, spark).where(F.col("cycle") <= cut.cycle)
    history = load_history_at(pipeline.lake, cut.cycle)
    differences = {
        table.name: _count_differences(
            pipeline,
            spark,
            stored_at(pipeline, table, cut.tables[table.name]),
            history,
            cut.tables[table.name],
            log,
        )
        for table in _tables_at(pipeline, cut, scope)
    }
    text = f"cut {cut.cut}: {{:,}} rows differ from the initial copies with the changes of the log"
    return _sum_up(differences, text)


def _tables_at(pipeline: Pipeline, cut: Cut, scope: Scope) -> list[TableSchema]:
    """Return the tables of a cut that a check reads."""
    return [table for table in pipeline.tables if table.name in cut.tables and scope.covers(table.name)]


def _sum_up(counts: Mapping[str, int], text: str) -> CheckResult:
    """Return the result of all tables, and of each one, from their numbers of wrong rows.

    Args:
        counts: number of wrong rows by table; 0 passes.
        text: the summary, with a placeholder for a number.
    """
    tables = {
        name: CheckResult(count == 0, text.format(count), {"differing_rows": count})
        for name, count in counts.items()
    }
    total = sum(counts.values())
    return CheckResult(total == 0, text.format(total), {"differing_rows": total}, tables)


def _count_differences(
    pipeline: Pipeline,
    spark: SparkSession,
    table: TableSchema,
    history: SchemaHistory,
    snapshot_id: int,
    log: DataFrame,
) -> int:
    source = find_beginning(pipeline, source_schema(table), history.tables.get(table.name))
    is_soft = keeps_deleted(table)
    source = replace(source, span=replace(source.span, has_partial_updates=True), keeps_truncated=is_soft)
    rows = log.where(F.col("table_name") == table.name)
    changes = read_changes(pipeline, spark, source, rows, has_origin=is_soft)
    schema = stored_schema(source.schema, replace(pipeline.options(table.name), soft_delete=is_soft))
    if is_soft:
        net_changes = compute_soft_net_changes(changes, schema, pipeline.capabilities)
    else:
        net_changes = compute_net_changes(changes, schema)
    names = [col(column.name) for column in schema.columns]
    # An update of a row that is new to the log has all of its values.
    actions = [APPEND] if trusts_inserts(pipeline, table.name, history) else [APPEND, UPDATE]
    expected_rows = net_changes.where(F.col(ACTION).isin(actions)).select(*names)
    lake_rows = read_table(pipeline, spark, table.name, snapshot_id).select(*names)
    with unfit_values():
        return count_differing(expected_rows, lake_rows)


def check_keys(pipeline: Pipeline, spark: SparkSession, scope: Scope) -> CheckResult:
    """Count the keys that a table holds more than once at the newest cut.

    Rows that the log marks as inserted are appended without a lookup in the table, so a source that inserts
    an existing row causes duplicates.
    """
    cut = newest_cut(pipeline.lake)
    if cut is None:
        return without_cut(pipeline)
    repeats = {
        table.name: _repeated_keys(read_table(pipeline, spark, table.name, cut.tables[table.name]), table)
        for table in _tables_at(pipeline, cut, scope)
    }
    tables = {name: _judge_keys(name, count, first, cut) for name, (count, first) in repeats.items()}
    summary = "; ".join(result.summary for result in tables.values() if not result.passed)
    facts = {"repeated_keys": sum(count for count, _ in repeats.values())}
    alright = f"cut {cut.cut}: no key occurs twice in {len(repeats):,} tables"
    return CheckResult(not summary, summary or alright, facts, tables)


def _judge_keys(name: str, repeated_keys: int, first: str | None, cut: Cut) -> CheckResult:
    summary = f"cut {cut.cut}: no key occurs twice"
    if repeated_keys:
        summary = f"duplicate keys in `{name}`: {repeated_keys:,}, such as {first}"
    return CheckResult(not repeated_keys, summary, {"repeated_keys": repeated_keys})


def _repeated_keys(rows: DataFrame, table: TableSchema) -> tuple[int, str | None]:
    """Return the number of keys of several rows each, and one of them as JSON."""
    names = [col(column.name) for column in table.key_columns]
    repeats = rows.groupBy(*names).count().where(F.col("count") > 1)
    ((count, first),) = repeats.agg(F.count("*"), F.min(F.to_json(F.struct(*names)))).collect()
    return count, first


def check_histories(pipeline: Pipeline, spark: SparkSession, scope: Scope) -> CheckResult:
    """Compare every history at the newest cut with its own rules, with its table and with the whole log."""
    cut = newest_cut(pipeline.lake)
    schemas = [
        table
        for table in pipeline.histories
        if cut is not None
        and history_name(table.name) in cut.tables
        and scope.covers(history_name(table.name))
    ]
    if cut is None or not schemas:
        return CheckResult(passed=True, summary="no table of a cut keeps a history", facts={"histories": 0})
    log = read_log(pipeline, spark).where(F.col("cycle") <= cut.cycle)
    columns_by_table = load_history_at(pipeline.lake, cut.cycle).tables
    with unfit_values():
        faults = {
            table.name: find_faults(pipeline, spark, table, columns_by_table.get(table.name), cut, log)
            for table in schemas
        }
    tables = {history_name(name): _judge_history(of_table, cut) for name, of_table in faults.items()}
    total = sum(history_faults.total for history_faults in faults.values())
    versions = sum(history_faults.versions for history_faults in faults.values())
    facts = {"histories": len(schemas), "wrong_versions": total}
    summary = f"cut {cut.cut}: {total:,} wrong versions of {versions:,} in {len(schemas):,} histories"
    return CheckResult(total == 0, summary, facts, tables)


def _judge_history(faults: HistoryFaults, cut: Cut) -> CheckResult:
    summary = f"cut {cut.cut}: {faults.total:,} wrong versions of {faults.versions:,}"
    return CheckResult(faults.total == 0, summary, asdict(faults))
