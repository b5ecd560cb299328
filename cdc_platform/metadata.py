"""Metadata of runs in the UI; every key is spelled here and nowhere else."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import dagster as dg
import pyarrow as pa

from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.base.timestamps import to_datetime, to_rfc3339
from cdc_platform.model.schema.table_schema import TableSchema, spark_type
from cdc_platform.model.stream.lineage import Lineage, Partition, PartitionState, watermark_micros
from cdc_platform.model.stream.read_windows import WindowReport
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.visible import visible_text

if TYPE_CHECKING:
    # The sensor imports this module, and does without Spark.
    from cdc_platform.pipeline.copying.copy import CopyOutcome
    from cdc_platform.pipeline.merging.build import MergeOutcome
    from cdc_platform.pipeline.ordering.order import OrderOutcome
    from cdc_platform.pipeline.publishing.maintain import MaintenanceOutcome
    from cdc_platform.pipeline.reading.read import ReadOutcome

Metadata = Mapping[str, Any]

ROW_COUNT: Final = "dagster/row_count"
COLUMN_SCHEMA: Final = "dagster/column_schema"
TABLE_NAME: Final = "dagster/table_name"

SHOWN_PARTITIONS: Final = 200
"""Most partitions that the tree and the table of the lineage show: the newest ones."""

MARKS: Final = {
    PartitionState.CREATED: "waits for its parents",
    PartitionState.SCHEDULED: "to be read",
    PartitionState.RUNNING: "live",
    PartitionState.FINISHED: "finished",
    PartitionState.ENDED: "ended",
}


def visible(metadata: Metadata) -> Metadata:
    """Return metadata with all its texts made visible: names, values and errors come from the source."""
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


def seconds_between(earlier_micros: int, later_micros: int) -> float:
    """Return how many seconds lie between two moments."""
    return round((later_micros - earlier_micros) / 1e6, 3)


def moment(micros: int) -> dg.TimestampMetadataValue:
    """Return a moment that the UI shows in the reader's time zone."""
    return dg.MetadataValue.timestamp(to_datetime(micros))


def arrow_schema(schema: pa.Schema) -> dg.TableSchema:
    """Return the columns of one of the platform's own tables."""
    return dg.TableSchema(columns=[dg.TableColumn(field.name, _type_name(field.type)) for field in schema])


_TYPE_NAMES: Final = {pa.int64(): "bigint", pa.int32(): "int", pa.bool_(): "boolean"}


def _type_name(kind: pa.DataType) -> str:
    """Return a type as Spark calls it, and as the columns of the source tables are shown."""
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_list(kind):
        return f"array<{_type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_type_name(kind.key_type)},{_type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        fields = ",".join(f"{field.name}:{_type_name(field.type)}" for field in kind)
        return f"struct<{fields}>"
    return _TYPE_NAMES.get(kind, str(kind))


def table_schema(schema: TableSchema) -> dg.TableSchema:
    """Return the columns of a materialised table; key columns are marked."""
    keys = {column.name for column in schema.key_columns}
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                spark_type(column.type),
                constraints=dg.TableColumnConstraints(
                    nullable=column.name not in keys, other=["primary key"] if column.name in keys else []
                ),
            )
            for column in schema.columns
        ]
    )


def describe_read(read: "ReadOutcome", lineage: Lineage) -> Metadata:
    """Report what a cycle has read, by kind of record, and how far behind the source's clock it is."""
    watermark = watermark_micros(lineage)
    lag = {"watermark_lag_s": seconds_between(watermark, read.clock_micros)} if watermark is not None else {}
    return visible(
        {
            "cycle": read.cycle,
            **{f"{kind.value}_records": read.records.get(kind, 0) for kind in _SOURCE_KINDS},
            "windows_read": len(read.windows),
            "windows_interrupted": len(read.interrupted),
            **lag,
            **({"windows": window_table(read.windows, lineage)} if read.windows else {}),
        }
    )


_SOURCE_KINDS: Final = (RecordKind.DATA_CHANGE, RecordKind.HEARTBEAT, RecordKind.CHILD_PARTITIONS)


def describe_window(report: WindowReport, clock_micros: int) -> Metadata:
    """Tell how far one partition has been read."""
    return {
        "position": moment(report.end_inclusive_micros),
        "position_lag_s": seconds_between(report.end_inclusive_micros, clock_micros),
        "window_s": seconds_between(report.start_exclusive_micros, report.end_inclusive_micros),
        "outcome": report.outcome.value,
        **({"error": visible_text(report.error)} if report.error else {}),
    }


def window_table(windows: Iterable[WindowReport], lineage: Lineage) -> dg.TableMetadataValue:
    """Return the windows of a cycle as a table."""
    keys = {partition.token: partition.key for partition in lineage.partitions.values()}
    return dg.MetadataValue.table(
        [
            dg.TableRecord(
                {
                    "partition": keys.get(report.token, report.token),
                    "start_exclusive": to_rfc3339(report.start_exclusive_micros),
                    "end_inclusive": to_rfc3339(report.end_inclusive_micros),
                    "outcome": report.outcome.value,
                    "error": report.error or "",
                }
            )
            for report in windows
        ]
    )


def describe_lineage(lineage: Lineage) -> Metadata:
    """Tell the number of partitions in each state, and show them as a tree and as a table."""
    partitions = sorted(
        lineage.partitions.values(), key=lambda partition: (partition.start_micros, partition.key)
    )
    counts = {
        f"{state.value}_partitions": sum(partition.state is state for partition in partitions)
        for state in PartitionState
    }
    watermark = watermark_micros(lineage)
    return {
        "cycle": lineage.cycle,
        ROW_COUNT: len(partitions),
        **counts,
        **({"watermark": moment(watermark)} if watermark is not None else {}),
        "partition_tree": dg.MetadataValue.md(partition_tree(partitions[-SHOWN_PARTITIONS:])),
        "partitions": _partition_table(partitions[-SHOWN_PARTITIONS:]),
    }


def partition_tree(partitions: Sequence[Partition]) -> str:
    """Return partitions as a nested Markdown list; one that merged stands below its first parent."""
    shown = {partition.token for partition in partitions}
    children: dict[str | None, list[Partition]] = {}
    for partition in partitions:
        parent = next((token for token in partition.parent_tokens if token in shown), None)
        children.setdefault(parent, []).append(partition)
    lines: list[str] = []
    pending = [(0, partition) for partition in reversed(children.get(None, []))]
    while pending:
        depth, partition = pending.pop()
        merged = f", merged from {len(partition.parent_tokens)}" if len(partition.parent_tokens) > 1 else ""
        lines.append(f"{'  ' * depth}- `{partition.key}` {MARKS[partition.state]}{merged}")
        # A chain of partitions is a straight line, not an ever deeper list.
        below = children.get(partition.token, [])
        deeper = depth + 1 if len(below) > 1 else depth
        pending += [(deeper, child) for child in reversed(below)]
    return "\n".join(lines)


def _partition_table(partitions: Sequence[Partition]) -> dg.TableMetadataValue:
    keys = {partition.token: partition.key for partition in partitions}
    return dg.MetadataValue.table(
        [
            dg.TableRecord(
                {
                    "partition": partition.key,
                    "state": partition.state.value,
                    "position": to_rfc3339(partition.position_micros),
                    "parents": ", ".join(keys.get(token, token[:8]) for token in partition.parent_tokens),
                    "start": to_rfc3339(partition.start_micros),
                }
            )
            for partition in reversed(partitions)
        ]
    )


def describe_order(order: "OrderOutcome", clock_micros: int, rows: int | None) -> Metadata:
    """Report what a step has added to the log, and how far the log reaches."""
    reach: Metadata = {}
    if order.watermark_micros is not None:
        reach = {
            "watermark": moment(order.watermark_micros),
            "watermark_lag_s": seconds_between(order.watermark_micros, clock_micros),
        }
    return {
        "cycle": order.cycle,
        "changes": order.changes,
        "transactions": order.transactions,
        "quarantined": order.quarantined,
        **({ROW_COUNT: rows} if rows is not None else {}),
        **reach,
    }


def describe_copies(outcome: "CopyOutcome") -> Metadata:
    """Tell how far the initial copies are that a step went on with."""
    return visible(
        {
            "tables_copying": len([copy for copy in outcome.copies if not copy.is_complete]),
            "rows_copied": outcome.rows,
            **({"notes": dg.MetadataValue.md("\n\n".join(outcome.notes))} if outcome.notes else {}),
            **(
                {"failure": f"{type(outcome.failure).__name__}: {outcome.failure}"} if outcome.failure else {}
            ),
            **({"copies": _copy_table(outcome)} if outcome.copies else {}),
        }
    )


def _copy_table(outcome: "CopyOutcome") -> dg.TableMetadataValue:
    return dg.MetadataValue.table(
        [
            dg.TableRecord(
                {
                    "table": copy.plan.table,
                    "as_of": to_rfc3339(copy.plan.position_micros),
                    "chunks": len(copy.plan.chunks),
                    "copied_chunks": len(copy.done),
                    "copied_rows": copy.rows,
                }
            )
            for copy in outcome.copies
        ]
    )


def describe_merge(merge: "MergeOutcome", schema: TableSchema, rows: int | None) -> Metadata:
    """Report what a step did to a table."""
    return {
        "cycle": merge.cycle,
        "rows_appended": merge.appended,
        "rows_updated": merge.updated,
        "rows_deleted": merge.deleted,
        "fell_back": int(merge.fell_back),
        COLUMN_SCHEMA: table_schema(schema),
        **({ROW_COUNT: rows} if rows is not None else {}),
        **({"snapshot_id": str(merge.snapshot_id)} if merge.snapshot_id is not None else {}),
    }


def describe_history(merge: "MergeOutcome", schema: TableSchema, rows: int | None) -> Metadata:
    """Report what a step did to a history."""
    described = describe_merge(merge, schema, rows)
    renamed = {"versions_appended": merge.appended, "versions_ended": merge.updated}
    return {key: value for key, value in described.items() if not key.startswith("rows_")} | renamed


def describe_cut(cut: Cut | None, clock_micros: int) -> Metadata:
    """Report what readers see now."""
    if cut is None:
        return {"cut": 0}
    return {
        "cut": cut.cut,
        "cycle": cut.cycle,
        "position": moment(cut.position_micros),
        "cut_lag_s": seconds_between(cut.position_micros, clock_micros),
        "tables": dg.MetadataValue.table(
            [
                dg.TableRecord({"table": name, "snapshot_id": str(snapshot)})
                for name, snapshot in cut.tables.items()
            ]
        ),
    }


def describe_maintenance(outcome: "MaintenanceOutcome") -> Metadata:
    """Tell how many files maintenance has rewritten and deleted."""
    return {
        "minor_files": outcome.minor_files,
        "major_files": outcome.major_files,
        "expired_files": outcome.expired_files,
    }
