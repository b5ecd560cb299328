"""Metadata of runs in the UI; only this module spells the keys."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from cdc_platform.assets.partition_picture import draw_picture
from cdc_platform.assets.table_columns import table_schema
from cdc_platform.dashboard.partition_lanes import draw_partitions
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.base.timestamps import to_datetime, to_rfc3339
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.lineage import Lineage, Partition, PartitionState, watermark_micros
from cdc_platform.model.stream.read_windows import WindowReport
from cdc_platform.visible import visible_text

if TYPE_CHECKING:
    # The sensor imports this module, and must not load Spark.
    from cdc_platform.pipeline.copying.copy import CopyOutcome
    from cdc_platform.pipeline.merging.build import MergeOutcome
    from cdc_platform.pipeline.ordering.order import OrderOutcome
    from cdc_platform.pipeline.publishing.maintain import MaintenanceOutcome

Metadata = Mapping[str, Any]

ROW_COUNT: Final = "dagster/row_count"
COLUMN_SCHEMA: Final = "dagster/column_schema"
COLUMN_LINEAGE: Final = "dagster/column_lineage"
TABLE_NAME: Final = "dagster/table_name"
LAG: Final = "Lag of the newest cut (s)"
READING_TO_PUBLICATION: Final = "Time from reading to publication (s)"
"""The lag of a cut for event sources, whose events belong to the cycle that reads them."""
WAITING: Final = "Time that events wait to be read (s)"
"""The lag of an event source that still has data for the pipeline."""
STATUS_PAGE: Final = "Status page"
DASHBOARD_URL: Final = "CDC_PLATFORM_DASHBOARD_URL"
"""Environment variable with the address of `cdc-platform dashboard`, for the link on each asset's page."""

SHOWN_PARTITIONS: Final = 200
"""Maximum number of partitions in the table of the lineage, which shows the newest ones."""
DRAWN_PARTITIONS: Final = 60
"""Maximum number of partitions in the picture of the lineage."""
SHOWN_TABLES: Final = 200
"""Maximum number of tables that a cut shows; the lake's table `cuts` has all of them."""


def visible(metadata: Metadata) -> Metadata:
    """Return metadata with hidden characters made visible: names, values and errors come from the source."""
    return {name: _visible(value) for name, value in metadata.items()}


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible_text(value)
    if isinstance(value, dg.MarkdownMetadataValue):
        return dg.MetadataValue.md(visible_text(value.md_str or ""))
    if isinstance(value, dg.TableMetadataValue):
        records = [dg.TableRecord(visible(record.data)) for record in value.records]
        return dg.MetadataValue.table(records, schema=value.schema)
    if isinstance(value, Mapping):
        return visible(value)
    return value


def describe_facts(facts: Metadata) -> Metadata:
    """Return the facts of a check under labels like those of assets: `longest_s` becomes `Longest (s)`."""
    return visible({_as_label(name): fact for name, fact in facts.items()})


def _as_label(name: str) -> str:
    words = name.removesuffix("_s").replace("_", " ").capitalize()
    return f"{words} (s)" if name.endswith("_s") else words


def link_status_page(pipeline: str) -> Metadata:
    """Return the link to a pipeline on the status page, if `CDC_PLATFORM_DASHBOARD_URL` is set."""
    address = os.environ.get(DASHBOARD_URL)
    return {STATUS_PAGE: dg.MetadataValue.url(f"{address.rstrip('/')}/#{pipeline}")} if address else {}


def moment(micros: int) -> dg.TimestampMetadataValue:
    """Return a moment that the UI shows in the reader's time zone."""
    return dg.MetadataValue.timestamp(to_datetime(micros))


def describe_source(clock_micros: int) -> Metadata:
    """Report the source time up to which a run read."""
    return {"Known up to": moment(clock_micros)}


def describe_window(report: WindowReport, clock_micros: int) -> Metadata:
    """Report the position of one partition after a read."""
    return {
        "Position": moment(report.end_inclusive_micros),
        "Lag of the partition (s)": round((clock_micros - report.end_inclusive_micros) / 1e6, 3),
        "Read window (s)": report.duration_s,
        "Outcome": report.outcome.value,
        **({"Error": visible_text(report.error)} if report.error else {}),
    }


def describe_lineage(lineage: Lineage) -> Metadata:
    """Report the number of partitions in each state, and show them as a picture and as a table."""
    partitions = sorted(
        lineage.partitions.values(), key=lambda partition: (partition.start_micros, partition.key)
    )
    counts = Counter(partition.state for partition in partitions)
    watermark = watermark_micros(lineage)
    return {
        **_cycle_text(lineage.cycle),
        "Partitions being read": counts[PartitionState.RUNNING],
        "Partitions to be read": counts[PartitionState.SCHEDULED],
        "Partitions waiting for parents": counts[PartitionState.CREATED],
        "Partitions that have ended": str(sum(partition.is_finished for partition in partitions)),
        **({"Watermark": moment(watermark)} if watermark is not None else {}),
        "Picture": dg.MetadataValue.md(draw_picture(draw_partitions(lineage, DRAWN_PARTITIONS))),
        "Partitions": _partition_table(partitions[-SHOWN_PARTITIONS:]),
    }


def rows_table(rows: Iterable[Mapping[str, str | int]]) -> dg.TableMetadataValue:
    """Return rows as a table of the UI; each row maps the names of columns to values."""
    return dg.MetadataValue.table([dg.TableRecord(row) for row in rows])


def _partition_table(partitions: Sequence[Partition]) -> dg.TableMetadataValue:
    keys = {partition.token: partition.key for partition in partitions}
    return rows_table(
        {
            "partition": partition.key,
            "state": partition.state.value,
            "position": to_rfc3339(partition.position_micros),
            "parents": ", ".join(keys.get(token, token[:8]) for token in partition.parent_tokens),
            "start": to_rfc3339(partition.start_micros),
        }
        for partition in reversed(partitions)
    )


def _cycle_text(cycle: int) -> Metadata:
    """Return the number of a cycle as text: the UI plots numbers, and this one only grows."""
    return {"Cycle": str(cycle)}


def describe_order(order: "OrderOutcome", rows: int | None) -> Metadata:
    """Report the changes that a step added to the log, and the end of the log."""
    reach = {"Watermark": moment(order.watermark_micros)} if order.watermark_micros is not None else {}
    return {
        **_cycle_text(order.cycle),
        "Changes": order.changes,
        "Transactions": order.transactions,
        "Records quarantined": order.quarantined,
        **({"Changes in the log": str(rows)} if rows is not None else {}),
        **reach,
    }


def describe_copies(outcome: "CopyOutcome") -> Metadata:
    """Report the progress of the initial copies that a step continued."""
    return visible(
        {
            "Tables being copied": len([copy for copy in outcome.copies if not copy.is_complete]),
            "Rows copied": outcome.rows,
            **({"Notes": dg.MetadataValue.md("\n\n".join(outcome.notes))} if outcome.notes else {}),
            **(
                {"Failure": f"{type(outcome.failure).__name__}: {outcome.failure}"} if outcome.failure else {}
            ),
            **({"Copies": _copy_table(outcome)} if outcome.copies else {}),
        }
    )


def _copy_table(outcome: "CopyOutcome") -> dg.TableMetadataValue:
    return rows_table(
        {
            "table": copy.plan.table,
            "as_of": to_rfc3339(copy.plan.position_micros),
            "chunks": len(copy.plan.chunks),
            "copied_chunks": len(copy.done),
            "copied_rows": copy.rows,
        }
        for copy in outcome.copies
    )


TABLE_COUNTS: Final = ("Rows appended", "Rows updated", "Rows deleted")
HISTORY_COUNTS: Final = ("Versions appended", "Versions ended")


@dataclass(frozen=True)
class StoredTable:
    """A table or history after a merge: its columns, its number of rows, and the source's comments."""

    schema: TableSchema
    rows: int | None
    comments: Mapping[str, str]
    is_history: bool


def describe_merge(merge: "MergeOutcome", table: StoredTable, log: dg.AssetKey) -> Metadata:
    """Report the effects of a step on a table or a history, and the lineage of its columns."""
    keys = {column.name for column in table.schema.key_columns}
    made_of = {
        column.name: [dg.TableColumnDep(log, "keys" if column.name in keys else "new_values")]
        for column in table.schema.columns
    }
    names = HISTORY_COUNTS if table.is_history else TABLE_COUNTS
    return {
        **dict(zip(names, (merge.appended, merge.updated, merge.deleted), strict=False)),
        **_cycle_text(merge.cycle),
        "Merged in full": bool(merge.fell_back),
        **({"Comment of the source": visible_text(text)} if (text := table.comments.get("")) else {}),
        COLUMN_SCHEMA: table_schema(table.schema, table.comments),
        COLUMN_LINEAGE: dg.TableColumnLineage(made_of),
        **({ROW_COUNT: table.rows} if table.rows is not None else {}),
        **({"Snapshot": str(merge.snapshot_id)} if merge.snapshot_id is not None else {}),
    }


def describe_cut(cut: Cut | None, left_since_micros: int | None, *, delivers_events: bool) -> Metadata:
    """Report the cut that readers see now, and its lag when it was published; see `left_since`."""
    if cut is None:
        return {"Cut": "0"}
    return {
        "Cut": str(cut.cut),
        **_cycle_text(cut.cycle),
        "Position": moment(cut.position_micros),
        (READING_TO_PUBLICATION if delivers_events else LAG): cut.lag_s(),
        **({WAITING: cut.lag_s(since_micros=left_since_micros)} if left_since_micros is not None else {}),
        "Tables": rows_table(
            {"table": name, "snapshot_id": str(snapshot)}
            for name, snapshot in islice(cut.tables.items(), SHOWN_TABLES)
        ),
        **({"Tables in the cut": len(cut.tables)} if len(cut.tables) > SHOWN_TABLES else {}),
    }


def describe_seconds(seconds: Mapping[str, float]) -> Metadata:
    """Report the duration of each step of a cycle."""
    return {f"Step {step} (s)": round(duration_s, 3) for step, duration_s in seconds.items()}


def describe_maintenance(outcome: "MaintenanceOutcome") -> Metadata:
    """Report the numbers of files that maintenance rewrote and deleted."""
    return {
        "Small files compacted": outcome.minor_files,
        "Large files rewritten": outcome.major_files,
        "Files expired": outcome.expired_files,
    }
