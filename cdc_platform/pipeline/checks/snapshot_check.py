"""Check for rows that are missing from a repeated snapshot of their table."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.model.base.stored_names import LOG, NEW_TABLES_RUN
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.stream.ordering_key import SEPARATOR
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.pipeline.checks.check_result import SHOWN, CheckResult, Scope
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.lake_frames import read_data_changes, read_log


def check_snapshots(pipeline: Pipeline, spark: SparkSession, _scope: Scope) -> CheckResult:
    """Count rows that are missing from a repeated snapshot of their table and have not changed since."""
    snapshots = _snapshots(pipeline, spark)
    repeats = {
        snapshot.table: snapshot.newest
        for snapshot in snapshots
        if snapshot.newest not in ("", snapshot.oldest)
    }
    passed_by = {
        snapshot.table: snapshot.of_server for snapshot in snapshots if snapshot.newest < snapshot.of_server
    }
    log = read_log(pipeline, spark)
    stale, doubtful = _unseen(log, repeats), _unseen(log, passed_by)
    sure = {snapshot.table for snapshot in snapshots if snapshot.is_initial}
    sentences = [
        f"{row['rows']:,} rows of `{name}` are not in its newest snapshot, such as {', '.join(row['shown'])}"
        for name, row in stale.items()
    ] + [
        f"{row['rows']:,} rows of `{name}` may be gone, such as {', '.join(row['shown'])}: the newest "
        "snapshot has no row of the table, which was empty or left out; notifications would show which"
        for name, row in doubtful.items()
    ]
    advice = [". With `snapshots: replace` they go"] if sentences else []
    return CheckResult(
        not stale and not sure & doubtful.keys(),
        "; ".join(sentences) + "".join(advice) or "every row is in the snapshot or changed since",
        {"rows": sum(row["rows"] for row in stale.values()), "repeated_snapshots": len(repeats)},
    )


@dataclass(frozen=True)
class _Snapshots:
    """Positions of a table's snapshots, empty without any, and of its server's newest one of all tables.

    The embedded engine's snapshots of new tables say nothing about others. ``is_initial`` means that the
    connector began with the newest snapshot, which thus covered all its tables.
    """

    table: str
    oldest: str
    newest: str
    of_server: str
    is_initial: bool


def _events_in_log(pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    """Return table, server, position and connector run of each event in the log, and whether it is a row."""
    # All rows of a snapshot share its position, the first part of their ordering keys.
    is_row = "mod_type = 'SNAPSHOT' and get_json_object(event.metadata, '$.snapshot') <> 'incremental'"
    position_micros = read_mark(pipeline.lake.system_table(LOG)).position_micros or 0
    in_log = F.col("record_timestamp") <= F.lit(to_datetime(position_micros))
    return (
        read_data_changes(pipeline, spark)
        .where(in_log)
        .selectExpr(
            "table_name",
            "get_json_object(record_sequence, '$[0]') as server",
            f"split_part(record_order, '{SEPARATOR}', 1) as position",
            f"coalesce({is_row}, false) as is_row",
            "get_json_object(event.metadata, '$.run_id') as run",
        )
    )


def _snapshots(pipeline: Pipeline, spark: SparkSession) -> list[_Snapshots]:
    """Return the snapshots of each table according to those of its events that are in the log."""
    events = _events_in_log(pipeline, spark)
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
    whole = [row for row in in_order if row["run"] != NEW_TABLES_RUN]
    newest = {row["server"]: row["newest"] for row in whole}
    runs = {row["server"]: row["run"] for row in whole}
    last = {(row["server"], row["table_name"]): row["newest"] for row in in_order}
    first = {
        (row["server"], row["table_name"]): row["oldest"]
        for row in sorted(places, key=lambda row: row["oldest"], reverse=True)
    }
    newer_runs = {row["server"] for row in ends if _is_before(row, newest, runs)}
    return [
        _Snapshots(
            table,
            first.get((server, table), ""),
            last.get((server, table), ""),
            newest.get(server, ""),
            runs.get(server) is not None and server not in newer_runs,
        )
        for server, table in sorted({(row["server"], row["table_name"]) for row in ends}, key=str)
    ]


def _is_before(row: Row, newest: Mapping[str | None, str], runs: Mapping[str | None, str | None]) -> bool:
    """Return whether the connector run that took a server's newest snapshot reported changes before it."""
    first, newest_of_server = row["changed"], newest.get(row["server"])
    if first is None or newest_of_server is None:
        return False
    return bool(row["run"] == runs.get(row["server"]) and first < newest_of_server)


def _unseen(log: DataFrame, starts_by_table: Mapping[str, str]) -> Mapping[str, Row]:
    """Return, by table, the number of rows that have not changed since its position, and their first keys."""
    if not starts_by_table:
        return {}
    changes = log.where(F.col("table_name").isin([*starts_by_table]))
    is_truncate = F.col("change_kind") == ChangeKind.TRUNCATE.value
    truncates = changes.where(is_truncate).groupBy("table_name").agg(F.max("ordinal").alias("emptied_at"))
    rows = changes.where(~is_truncate).groupBy("table_name", "keys")
    newest = rows.agg(
        F.max_by("change_kind", "ordinal").alias("kind"),
        F.max("ordinal").alias("changed_at"),
        F.max("ordering_key").alias("newest"),
    )
    starts = F.create_map(*(F.lit(part) for pair in starts_by_table.items() for part in pair))
    is_living = f"kind <> '{ChangeKind.DELETE.value}' and changed_at > coalesce(emptied_at, -1)"
    living_rows = newest.join(F.broadcast(truncates), "table_name", "left").where(is_living)
    stale = living_rows.where(F.col("newest") < starts[F.col("table_name")])
    ranks = stale.withColumn("number", F.row_number().over(Window.partitionBy("table_name").orderBy("keys")))
    examples = F.sort_array(F.collect_list(F.when(F.col("number") <= SHOWN, F.col("keys")))).alias("shown")
    counts = ranks.groupBy("table_name").agg(F.count("*").alias("rows"), examples).orderBy("table_name")
    return {row["table_name"]: row for row in counts.collect()}
