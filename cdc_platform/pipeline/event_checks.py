"""Checks of what sources leave out that hand out events: values, ends of transactions, rows of snapshots."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.commits import read_mark
from cdc_platform.lake.lake import LOG, RAW
from cdc_platform.model.changes import ChangeKind
from cdc_platform.model.order_key import SEPARATOR
from cdc_platform.model.records import ModType, RecordKind
from cdc_platform.model.timestamps import to_rfc3339
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.verdict import Scope, Verdict
from cdc_platform.spark.unresolved import LACKS_VALUES, unresolved_values

WAITS_S: Final = 60.0
"""So long after its commit a transaction may be on its way."""
SHOWN: Final = 5
FINDINGS: Final = {
    "lossy_nulls": "nulls that may be values which were not sent",
    "literal_markers": "values that look like markers",
    "null_or_default": "values that may be NULL, since they are the column's default",
}
"""What sources note in the metadata of events, as lists of columns."""
PAYS_FROM: Final = 0.5
"""Where so large a share of a table's updates lacks values, sending them all is worth it."""
PAYS_FROM_UPDATES: Final = 100


def check_values(pipeline: Pipeline, spark: SparkSession, _scope: Scope) -> Verdict:
    """Count values that the source did not send and nobody knows, and what its events leave in doubt."""
    log = spark.table(pipeline.lake.spark_system_table(LOG))
    unresolved = unresolved_values(log, comes_in_order=pipeline.traits.comes_in_order)
    total = unresolved.count()
    shown = unresolved.orderBy("table_name", "keys", "column_name").limit(SHOWN).collect() if total else []
    doubts = _findings(pipeline, spark)
    shares = _shares(log)
    advised = sorted(
        {row["table_name"] for row in unresolved.select("table_name").distinct().collect()}
        | {name for name, (lacking, updates) in shares.items() if _pays(lacking, updates)}
    )
    parts = [
        f"{total} values are unresolved" + "".join(f"; `{row[0]}` {row[1]}: {row[2]}" for row in shown),
        *(f"{doubts[name]} {words}" for name, words in FINDINGS.items() if doubts[name]),
        # Datastream refuses this identity.
        *(_advice(name, *shares.get(name, (0, 0))) for name in advised if pipeline.traits.comes_in_order),
    ]
    return Verdict(
        passed=total == 0 and not doubts["lossy_nulls"],
        summary=". ".join(parts),
        facts={"unresolved": total, **{name: doubts[name] for name in FINDINGS}},
    )


def _findings(pipeline: Pipeline, spark: SparkSession) -> Counter[str]:
    raw = spark.table(pipeline.lake.spark_system_table(RAW)).where(
        F.col("kind") == RecordKind.DATA_CHANGE.value
    )
    counts = [
        F.expr(
            "coalesce(sum(size(from_json(get_json_object(event.metadata, "
            f"'$.{name}'), 'array<string>'))), 0) as {name}"
        )
        for name in FINDINGS
    ]
    row = raw.where(_notes_something()).dropDuplicates(["record_sequence"]).agg(*counts).collect()[0]
    return Counter({name: int(row[name]) for name in FINDINGS})


def _notes_something() -> str:
    return " OR ".join(f"contains(event.metadata, '\"{name}\"')" for name in FINDINGS)


def _shares(log: DataFrame) -> Mapping[str, tuple[int, int]]:
    """Return, by table, how many updates lack values, and how many there are."""
    updates = log.where(F.col("change_kind") == ChangeKind.UPDATE.value)
    rows = updates.groupBy("table_name").agg(F.expr(f"count_if({LACKS_VALUES})"), F.count("*")).collect()
    return {row[0]: (int(row[1]), int(row[2])) for row in rows}


def _pays(lacking: int, updates: int) -> bool:
    return lacking >= PAYS_FROM_UPDATES and lacking >= PAYS_FROM * updates


def _advice(table: str, lacking: int, updates: int) -> str:
    share = f", where {lacking} of {updates} updates lack values," if lacking else ""
    return f"With REPLICA IDENTITY FULL `{table}`{share} would send all values"


def check_arrival(pipeline: Pipeline, _spark: SparkSession, _scope: Scope) -> Verdict:
    """Look for transactions that hold back what comes after them, since more of them is to come."""
    now = pipeline.source.clock_micros()
    waiting = [one for one in _waiting(pipeline) if _is_late(one, now)]
    return Verdict(
        not waiting,
        "; ".join(_told(one) for one in waiting[:SHOWN]) or "no transaction waits for the rest of it",
        {"waiting": len(waiting)},
    )


def _waiting(pipeline: Pipeline) -> list[Mapping[str, Any]]:
    """Return the transactions that the newest tick has held back."""
    raw = pipeline.lake.system_table(RAW)
    condition = f"kind = '{RecordKind.FILE.value}' and tick = {read_mark(raw).tick}"
    rows = raw.scan(row_filter=condition, selected_fields=("kind", "tick", "event")).to_arrow().to_pylist()
    reports = (json.loads(row["event"]["metadata"]) for row in rows)
    return [one for report in reports for one in report.get("waiting", ())]


def _is_late(waiting: Mapping[str, Any], now_micros: int) -> bool:
    since = waiting["since_micros"]
    return since is None or now_micros - since > WAITS_S * 1_000_000


def _told(waiting: Mapping[str, Any]) -> str:
    since, expected = waiting["since_micros"], waiting["expected"]
    when = f", committed at {to_rfc3339(since)}," if since is not None else ""
    of = f" of {expected}" if expected is not None else ", and its END has not come"
    return (
        f"Transaction {waiting['transaction_id']}{when} waits: {waiting['seen']} events have come{of}. "
        "What comes after it waits with it"
    )


def check_snapshots(pipeline: Pipeline, spark: SparkSession, _scope: Scope) -> Verdict:
    """Count rows that a repeated snapshot of their table does not have, and that nobody has changed since."""
    begun = _repeated(pipeline, spark)
    stale: defaultdict[str, list[str]] = defaultdict(list)
    if begun:
        for row in _unseen(spark.table(pipeline.lake.spark_system_table(LOG)), begun).collect():
            stale[row["table_name"]].append(row["keys"])
    total = sum(map(len, stale.values()))
    told = "; ".join(
        f"{len(keys)} rows of `{name}` are not in its newest snapshot, such as {', '.join(keys[:SHOWN])}"
        for name, keys in sorted(stale.items())
    )
    return Verdict(
        total == 0,
        f"{told}. With `snapshots: replace` they go"
        if told
        else "every row is in the snapshot or changed since",
        {"rows": total, "repeated_snapshots": len(begun)},
    )


def _repeated(pipeline: Pipeline, spark: SparkSession) -> Mapping[str, str]:
    """Return, by table, the position of its newest snapshot, where there were several."""
    raw = spark.table(pipeline.lake.spark_system_table(RAW)).where(
        (F.col("kind") == RecordKind.DATA_CHANGE.value) & (F.col("mod_type") == ModType.SNAPSHOT.value)
    )
    # All rows of a snapshot share its position, the first part of their order keys.
    positions = raw.where("get_json_object(event.metadata, '$.snapshot') <> 'incremental'").selectExpr(
        "table_name", f"split_part(record_order, '{SEPARATOR}', 1) as position"
    )
    found = positions.groupBy("table_name").agg(F.max("position"), F.min("position")).collect()
    return {table: newest for table, newest, oldest in found if newest != oldest}


def _unseen(log: DataFrame, begun: Mapping[str, str]) -> DataFrame:
    kind = F.max_by("change_kind", "ordinal")
    rows = log.where(F.col("table_name").isin([*begun])).groupBy("table_name", "keys")
    newest = rows.agg(kind.alias("kind"), F.max("order_key").alias("newest"))
    starts = F.create_map(*(F.lit(part) for pair in begun.items() for part in pair))
    truncated = [ChangeKind.DELETE.value, ChangeKind.TRUNCATE.value]
    is_living = ~F.col("kind").isin(truncated)
    return newest.where(is_living & (F.col("newest") < starts[F.col("table_name")])).orderBy("keys")
