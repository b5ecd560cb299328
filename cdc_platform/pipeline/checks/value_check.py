"""Check for values that event sources do not send, and for doubts about their events."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.stream.records import ChangeKind, ModType
from cdc_platform.pipeline.checks.check_result import SHOWN, CheckResult, Scope
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.lake_frames import read_data_changes, read_log
from cdc_platform.spark.log.unknown_values import unresolved_values

FINDINGS: Final = {
    "lossy_nulls": "nulls that may be values which were not sent",
    "literal_markers": "values that look like markers",
    "null_or_default": "values that may be NULL, since they are the column's default",
    "in_snapshot": "changes of rows without a key may have been in a snapshot already, and count twice",
}
"""Lists that sources store in the metadata of events: of columns, or of changes that may count twice."""
PAYS_FROM: Final = 0.5
"""Share of incomplete updates of a table above which it is worth sending all values."""
PAYS_FROM_UPDATES: Final = 100


def check_values(pipeline: Pipeline, spark: SparkSession, _scope: Scope) -> CheckResult:
    """Count values that the source did not send and that are unknown, and doubts about its events."""
    log = read_log(pipeline, spark)
    comes_in_order = pipeline.capabilities.comes_in_order
    # In other sources, column types do not follow the time of changes.
    since = pipeline.schema_history.observed_since if comes_in_order else {}
    values = unresolved_values(log, since, comes_in_order=comes_in_order)
    in_tables = {row[0]: int(row[1]) for row in values.groupBy("table_name").count().collect()}
    total = sum(in_tables.values())
    examples = values.orderBy("table_name", "keys", "column_name").limit(SHOWN).collect() if total else []
    by_table = _findings(pipeline, spark)
    doubts = sum(by_table.values(), Counter[str]())
    parts = [
        f"{total:,} values are unresolved" + "".join(f"; `{row[0]}` {row[1]}: {row[2]}" for row in examples),
        *(f"{doubts[name]:,} {words}" for name, words in FINDINGS.items() if doubts[name]),
    ]
    if pipeline.capabilities.comes_in_order:  # Datastream refuses this identity
        incomplete = {*in_tables, *(name for name, counts in by_table.items() if counts["lossy_nulls"])}
        parts += _advice(_updates(pipeline, spark), incomplete)
    lone, shown_lone = _lone_halves(pipeline, spark)
    if lone:
        shown_rows = "; ".join(f"`{row[0]}` {row[1]} became {row[2]}" for row in shown_lone)
        parts.append(
            f"rows missing from the lake: {lone:,}, whose keys changed and whose events with the new keys "
            f"never arrived: {shown_rows}. Replay the events if quarantine has them, or take a new snapshot"
        )
    return CheckResult(
        passed=not (total or doubts["lossy_nulls"] or doubts["in_snapshot"] or lone),
        summary=". ".join(parts),
        facts={"unresolved": total, "lone_halves": lone, **{name: doubts[name] for name in FINDINGS}},
    )


def _lone_halves(pipeline: Pipeline, spark: SparkSession) -> tuple[int, list[Row]]:
    """Return the number of rows that the log lacks because it has only half of a key change, and the first.

    Each of these is its table, key and new key.

    With transaction metadata the log always has both halves. It does not count halves of the newest cycle,
    whose other half may follow, nor rows that a later change or snapshot has restored.
    """
    if pipeline.capabilities.keeps_transactions or not pipeline.capabilities.comes_in_order:
        return 0, []
    events = read_data_changes(pipeline, spark).withColumn("keys", F.expr("mods[0].keys"))
    newest = read_mark(pipeline.lake.system_table(RAW)).cycle
    deletes = events.where((F.col("cycle") < newest) & F.expr("contains(event.metadata, '\"new_keys\"')"))
    new_keys = F.expr("get_json_object(event.metadata, '$.new_keys')").alias("new_keys")
    halves = ["server_transaction_id", "table_name", "keys"]
    inserts = events.where("event.previous_keys is not null").withColumn("keys", F.col("event.previous_keys"))
    lone = deletes.select(*halves, new_keys, "record_order").join(
        inserts.select(*halves), halves, "left_anti"
    )
    if lone.isEmpty():
        return 0, []
    log = read_log(pipeline, spark)
    is_delete = F.col("change_kind") == ChangeKind.DELETE.value
    delete_rows = log.where(is_delete).withColumnRenamed("transaction_id", "server_transaction_id")
    writes = log.where(~is_delete).selectExpr("table_name as named", "keys as written_keys", "ordering_key")
    is_back = "named = table_name and written_keys = new_keys and ordering_key > record_order"
    lost_rows = lone.join(delete_rows.select(*halves), halves, "left_semi").join(
        writes, F.expr(is_back), "left_anti"
    )
    lost_rows = lost_rows.select("table_name", "keys", "new_keys").distinct()
    examples = lost_rows.limit(SHOWN).collect()
    return (lost_rows.count() if len(examples) == SHOWN else len(examples)), examples


def _findings(pipeline: Pipeline, spark: SparkSession) -> Mapping[str, Counter[str]]:
    """Return the findings of the source in the metadata of events, by table."""
    counts = [
        F.expr(
            "coalesce(sum(size(from_json(get_json_object(event.metadata, "
            f"'$.{name}'), 'array<string>'))), 0) as {name}"
        )
        for name in FINDINGS
    ]
    has_finding = " OR ".join(f"contains(event.metadata, '\"{name}\"')" for name in FINDINGS)
    findings = read_data_changes(pipeline, spark).where(has_finding).dropDuplicates(["record_sequence"])
    rows = findings.groupBy("table_name").agg(*counts).collect()
    return {row["table_name"]: Counter({name: int(row[name]) for name in FINDINGS}) for row in rows}


@dataclass(frozen=True)
class _Updates:
    """Counts of a table's updates and of those that lack values; whether the newest has the old row."""

    incomplete: int
    total: int
    is_full: bool

    @property
    def pays(self) -> bool:
        """Whether it is worth sending all values from the source."""
        return self.incomplete >= PAYS_FROM_UPDATES and self.incomplete >= PAYS_FROM * self.total


def _updates(pipeline: Pipeline, spark: SparkSession) -> Mapping[str, _Updates]:
    """Return facts about each table's updates as the source sent them, since the log may be completed."""
    events = read_data_changes(pipeline, spark).where(F.col("mod_type") == ModType.UPDATE.value)
    lacks = "count_if(coalesce(size(event.unavailable_columns), 0) > 0)"
    is_full = "coalesce(max_by(mods[0].old_values IS NOT NULL, record_order), false)"
    counts = [F.expr(lacks), F.count("*"), F.expr(is_full)]
    rows = events.dropDuplicates(["record_sequence"]).groupBy("table_name").agg(*counts).collect()
    return {row[0]: _Updates(int(row[1]), int(row[2]), bool(row[3])) for row in rows}


def _advice(updates: Mapping[str, _Updates], incomplete: Collection[str]) -> list[str]:
    """Return the tables that should use another replica identity, without those that already do."""
    sentences = []
    for name in sorted({*incomplete, *(name for name, table_counts in updates.items() if table_counts.pays)}):
        table_counts = updates.get(name, _Updates(0, 0, is_full=False))
        if not table_counts.is_full:
            share = (
                f", where {table_counts.incomplete:,} of {table_counts.total:,} updates lack values,"
                if table_counts.incomplete
                else ""
            )
            sentences.append(f"With REPLICA IDENTITY FULL `{name}`{share} would send all values")
    return sentences
