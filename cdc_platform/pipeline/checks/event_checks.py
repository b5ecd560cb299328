"""Checks for values, ends of transactions and rows of snapshots that sources of events leave out."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.catalog.lake import RAW
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.read_progress import read_report
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.rows.changes import ChangeKind
from cdc_platform.model.stream.file_reports import Waiting
from cdc_platform.model.stream.ordering_key import SEPARATOR
from cdc_platform.model.stream.records import ModType, RecordKind
from cdc_platform.pipeline.checks.check_result import CheckResult, Scope
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.lake_frames import read_log, read_own
from cdc_platform.spark.log.unresolved import unresolved_values

WAITS_S: Final = 60.0
"""Time after its commit within which a transaction may still arrive."""
SHOWN: Final = 5
FINDINGS: Final = {
    "lossy_nulls": "nulls that may be values which were not sent",
    "literal_markers": "values that look like markers",
    "null_or_default": "values that may be NULL, since they are the column's default",
    "in_snapshot": "changes of rows without a key may have been in a snapshot already, and count twice",
}
"""Lists that sources keep in the metadata of events: of columns, or of changes that may count twice."""
PAYS_FROM: Final = 0.5
"""Share of incomplete updates of a table from which sending all values is worth it."""
PAYS_FROM_UPDATES: Final = 100


def check_values(pipeline: Pipeline, spark: SparkSession, _scope: Scope) -> CheckResult:
    """Count values that the source did not send and nobody knows, and what its events leave in doubt."""
    log = read_log(pipeline, spark)
    comes_in_order = pipeline.capabilities.comes_in_order
    # Where it does not, the types of columns follow no moment.
    since = pipeline.schema_history.observed_since if comes_in_order else {}
    unresolved = unresolved_values(log, since, comes_in_order=comes_in_order)
    in_tables = {row[0]: int(row[1]) for row in unresolved.groupBy("table_name").count().collect()}
    total = sum(in_tables.values())
    shown = unresolved.orderBy("table_name", "keys", "column_name").limit(SHOWN).collect() if total else []
    by_table = _findings(pipeline, spark)
    doubts = sum(by_table.values(), Counter[str]())
    parts = [
        f"{total} values are unresolved" + "".join(f"; `{row[0]}` {row[1]}: {row[2]}" for row in shown),
        *(f"{doubts[name]} {words}" for name, words in FINDINGS.items() if doubts[name]),
    ]
    if pipeline.capabilities.comes_in_order:  # Datastream refuses this identity
        lacking = {*in_tables, *(name for name, counts in by_table.items() if counts["lossy_nulls"])}
        parts += _advice(_updates(pipeline, spark), lacking)
    lone = _lone_halves(pipeline, spark)
    if lone:
        shown_rows = "; ".join(f"`{row[0]}` {row[1]} became {row[2]}" for row in lone[:SHOWN])
        parts.append(
            f"rows missing from the lake: {len(lone)}, whose keys changed and whose events with the new keys "
            f"never arrived: {shown_rows}. Replay the events if quarantine has them, or take a new snapshot"
        )
    return CheckResult(
        passed=not (total or doubts["lossy_nulls"] or doubts["in_snapshot"] or lone),
        summary=". ".join(parts),
        facts={"unresolved": total, "lone_halves": len(lone), **{name: doubts[name] for name in FINDINGS}},
    )


def _lone_halves(pipeline: Pipeline, spark: SparkSession) -> list[Row]:
    """Return table, key and new key of rows that the log lacks, because it has only half of a key change.

    With transaction metadata the log always takes both halves. Not counted are halves of the newest cycle,
    whose other half may follow, and rows that a later change or snapshot has brought back.
    """
    if pipeline.capabilities.keeps_transactions or not pipeline.capabilities.comes_in_order:
        return []
    events = _events(pipeline, spark).withColumn("keys", F.expr("mods[0].keys"))
    newest = read_mark(pipeline.lake.system_table(RAW)).cycle
    deletes = events.where((F.col("cycle") < newest) & F.expr("contains(event.metadata, '\"new_keys\"')"))
    new_keys = F.expr("get_json_object(event.metadata, '$.new_keys')").alias("new_keys")
    halves = ["server_transaction_id", "table_name", "keys"]
    inserts = events.where("event.previous_keys is not null").withColumn("keys", F.col("event.previous_keys"))
    lone = deletes.select(*halves, new_keys, "record_order").join(
        inserts.select(*halves), halves, "left_anti"
    )
    if lone.isEmpty():
        return []
    log = read_log(pipeline, spark)
    is_delete = F.col("change_kind") == ChangeKind.DELETE.value
    deleted = log.where(is_delete).withColumnRenamed("transaction_id", "server_transaction_id")
    writes = log.where(~is_delete).selectExpr("table_name as named", "keys as known", "ordering_key")
    is_back = "named = table_name and known = new_keys and ordering_key > record_order"
    lost = lone.join(deleted.select(*halves), halves, "left_semi").join(writes, F.expr(is_back), "left_anti")
    return lost.select("table_name", "keys", "new_keys").distinct().collect()


def _findings(pipeline: Pipeline, spark: SparkSession) -> Mapping[str, Counter[str]]:
    """Return what the source has noted in the metadata of events, by table."""
    counts = [
        F.expr(
            "coalesce(sum(size(from_json(get_json_object(event.metadata, "
            f"'$.{name}'), 'array<string>'))), 0) as {name}"
        )
        for name in FINDINGS
    ]
    noted = _events(pipeline, spark).where(_notes_something()).dropDuplicates(["record_sequence"])
    rows = noted.groupBy("table_name").agg(*counts).collect()
    return {row["table_name"]: Counter({name: int(row[name]) for name in FINDINGS}) for row in rows}


def _events(pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    raw = read_own(pipeline, spark, RAW)
    return raw.where(F.col("kind") == RecordKind.DATA_CHANGE.value)


def _notes_something() -> str:
    return " OR ".join(f"contains(event.metadata, '\"{name}\"')" for name in FINDINGS)


@dataclass(frozen=True)
class _Updates:
    """Counts of a table's updates and of those that lack values; whether the newest has the row before."""

    lacking: int
    total: int
    is_full: bool

    @property
    def pays(self) -> bool:
        """Whether it is worth it that the source sends all values."""
        return self.lacking >= PAYS_FROM_UPDATES and self.lacking >= PAYS_FROM * self.total


def _updates(pipeline: Pipeline, spark: SparkSession) -> Mapping[str, _Updates]:
    """Return what is known of each table's updates, as the source sent them: the log may be completed."""
    events = _events(pipeline, spark).where(F.col("mod_type") == ModType.UPDATE.value)
    lacks = "count_if(coalesce(size(event.unavailable_columns), 0) > 0)"
    full = "coalesce(max_by(mods[0].old_values IS NOT NULL, record_order), false)"
    counts = [F.expr(lacks), F.count("*"), F.expr(full)]
    rows = events.dropDuplicates(["record_sequence"]).groupBy("table_name").agg(*counts).collect()
    return {row[0]: _Updates(int(row[1]), int(row[2]), bool(row[3])) for row in rows}


def _advice(updates: Mapping[str, _Updates], lacking: Collection[str]) -> list[str]:
    """Return for which tables another replica identity pays; not for those that have it by now."""
    sentences = []
    for name in sorted({*lacking, *(name for name, table_counts in updates.items() if table_counts.pays)}):
        table_counts = updates.get(name, _Updates(0, 0, is_full=False))
        if not table_counts.is_full:
            share = (
                f", where {table_counts.lacking} of {table_counts.total} updates lack values,"
                if table_counts.lacking
                else ""
            )
            sentences.append(f"With REPLICA IDENTITY FULL `{name}`{share} would send all values")
    return sentences


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


def check_snapshots(pipeline: Pipeline, spark: SparkSession, _scope: Scope) -> CheckResult:
    """Count rows that a repeated snapshot of their table does not have, and that nobody has changed since."""
    snapshots = _snapshots(pipeline, spark)
    repeated = {
        snapshot.table: snapshot.newest
        for snapshot in snapshots
        if snapshot.newest not in ("", snapshot.oldest)
    }
    passed_by = {
        snapshot.table: snapshot.of_server for snapshot in snapshots if snapshot.newest < snapshot.of_server
    }
    log = read_log(pipeline, spark)
    stale, doubtful = _unseen(log, repeated), _unseen(log, passed_by)
    sure = {snapshot.table for snapshot in snapshots if snapshot.is_initial}
    sentences = [
        f"{len(keys)} rows of `{name}` are not in its newest snapshot, such as {', '.join(keys[:SHOWN])}"
        for name, keys in stale.items()
    ] + [
        f"{len(keys)} rows of `{name}` may be gone, such as {', '.join(keys[:SHOWN])}: the newest "
        "snapshot has no row of it, so that it was empty, or not looked at, as its notifications would tell"
        for name, keys in doubtful.items()
    ]
    advice = [". With `snapshots: replace` they go"] if sentences else []
    return CheckResult(
        not stale and not sure & doubtful.keys(),
        "; ".join(sentences) + "".join(advice) or "every row is in the snapshot or changed since",
        {"rows": sum(map(len, stale.values())), "repeated_snapshots": len(repeated)},
    )


@dataclass(frozen=True)
class _Snapshots:
    """Positions of a table's snapshots, empty for none, and of its server's newest one.

    ``is_initial`` means that the connector has begun with that one, so that it looked at all of its tables.
    """

    table: str
    oldest: str
    newest: str
    of_server: str
    is_initial: bool


def _snapshots(pipeline: Pipeline, spark: SparkSession) -> list[_Snapshots]:
    """Return what snapshots the events of each table show."""
    # All rows of a snapshot share its position, the first part of their ordering keys.
    is_row = "mod_type = 'SNAPSHOT' and get_json_object(event.metadata, '$.snapshot') <> 'incremental'"
    events = _events(pipeline, spark).selectExpr(
        "table_name",
        "get_json_object(record_sequence, '$[0]') as server",
        f"split_part(record_order, '{SEPARATOR}', 1) as position",
        f"coalesce({is_row}, false) as is_row",
        "get_json_object(event.metadata, '$.run_id') as run",
    )
    position = F.col("position")
    of_rows, of_changes = F.when(F.col("is_row"), position), F.when(~F.col("is_row"), position)
    by_run = events.where("table_name is not null").groupBy("server", "table_name", "run")
    ends = by_run.agg(
        F.max(of_rows).alias("newest"), F.min(of_rows).alias("oldest"), F.min(of_changes).alias("changed")
    ).collect()
    places = [row for row in ends if row["newest"] is not None]
    if not places:
        return []
    in_order = sorted(places, key=lambda row: row["newest"])
    newest = {row["server"]: row["newest"] for row in in_order}
    runs = {row["server"]: row["run"] for row in in_order}
    last = {(row["server"], row["table_name"]): row["newest"] for row in in_order}
    first = {
        (row["server"], row["table_name"]): row["oldest"]
        for row in sorted(places, key=lambda row: row["oldest"], reverse=True)
    }
    begun = {row["server"] for row in ends if _is_before(row, newest, runs)}
    return [
        _Snapshots(
            table,
            first.get((server, table), ""),
            last.get((server, table), ""),
            newest[server],
            runs.get(server) is not None and server not in begun,
        )
        for server, table in sorted({(row["server"], row["table_name"]) for row in ends}, key=str)
        if server in newest
    ]


def _is_before(row: Row, newest: Mapping[str | None, str], runs: Mapping[str | None, str | None]) -> bool:
    """Return whether the connector run that took a server's newest snapshot reported changes before it."""
    first, newest_of_server = row["changed"], newest.get(row["server"])
    if first is None or newest_of_server is None:
        return False
    return bool(row["run"] == runs.get(row["server"]) and first < newest_of_server)


def _unseen(log: DataFrame, begun: Mapping[str, str]) -> Mapping[str, list[str]]:
    """Return, by table, the keys of rows that have not changed since a position of the table's."""
    if not begun:
        return {}
    own = log.where(F.col("table_name").isin([*begun]))
    is_truncate = F.col("change_kind") == ChangeKind.TRUNCATE.value
    emptied = own.where(is_truncate).groupBy("table_name").agg(F.max("ordinal").alias("emptied_at"))
    rows = own.where(~is_truncate).groupBy("table_name", "keys")
    newest = rows.agg(
        F.max_by("change_kind", "ordinal").alias("kind"),
        F.max("ordinal").alias("changed_at"),
        F.max("ordering_key").alias("newest"),
    )
    starts = F.create_map(*(F.lit(part) for pair in begun.items() for part in pair))
    is_living = f"kind <> '{ChangeKind.DELETE.value}' and changed_at > coalesce(emptied_at, -1)"
    living = newest.join(F.broadcast(emptied), "table_name", "left").where(is_living)
    keys: defaultdict[str, list[str]] = defaultdict(list)
    for row in living.where(F.col("newest") < starts[F.col("table_name")]).orderBy("keys").collect():
        keys[row["table_name"]].append(row["keys"])
    return dict(sorted(keys.items()))
