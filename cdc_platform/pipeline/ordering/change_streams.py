"""Ordering of a change stream: whole transactions in commit order, with replays from quarantine."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.lake.state.quarantine import untaken_records
from cdc_platform.model.base.schemas import TIMESTAMP
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.stream.quarantined_records import QuarantinedRecord
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.strategy import Window
from cdc_platform.spark.frames.table_frames import local_frame
from cdc_platform.spark.log.faults import IS_MALFORMED, SHAPE_FAULT
from cdc_platform.spark.log.order import TRANSACTION, LogStats, OrderedChanges, measure, order_records
from cdc_platform.spark.log.ordered_rows import measure_rows


@dataclass(frozen=True)
class ChangeStreams:
    """The strategy for records that Spanner sends once, each with the size of its transaction."""

    pipeline: Pipeline
    reads_log = False
    leaves_deletion_markers = False

    def late_records(self, quarantine: Table, log: Table) -> tuple[QuarantinedRecord, ...]:
        """Return the replayed records that the log has not taken."""
        return untaken_records(self.pipeline.lake, quarantine, log)

    @contextmanager
    def ordered(self, raw: DataFrame, window: Window, expected_records: int) -> Iterator[OrderedChanges]:
        """Yield the changes of a window and of late transactions, in commit order."""
        records = raw.where(window.data_changes)
        if window.late:
            records = records.unionByName(self._decoded_again(_judged_again(raw, window.late), window.late))
        tables = window.tables_among(self.pipeline.known_tables)
        next_ordinal = window.mark.next_ordinal
        yield OrderedChanges(order_records(records, next_ordinal, expected_records, tables, window.places))

    def _decoded_again(self, records: DataFrame, late_records: Sequence[QuarantinedRecord]) -> DataFrame:
        """Return raw records of replayed transactions; this version decodes malformed records again."""
        if not any(record.reason.startswith(SHAPE_FAULT) for record in late_records):
            return records
        source, batches = self.pipeline.stream_source, []
        for row in records.where(f"{IS_MALFORMED} AND get(mods, 0).new_values IS NOT NULL").collect():
            text = row["mods"][0]["new_values"]
            batch = source.decode_again(row["cycle"], row["partition_token"], row["record_sequence"], text)
            if batch is not None:
                batches.append(batch)
        if not batches:
            return records
        table = pa.Table.from_batches(batches)
        sequences = table["record_sequence"].to_pylist()
        kept_records = records.where(~F.col("record_sequence").isin(sequences))
        return kept_records.unionByName(local_frame(records.sparkSession, table.select(records.columns)))

    def finalise(self, changes: DataFrame, _window: Window, _cache: ExitStack) -> tuple[DataFrame, LogStats]:
        """Return the changes unchanged, because ordering has already checked whole transactions."""
        return changes, measure(changes)

    def finalise_few(self, rows: pa.Table, _window: Window) -> tuple[pa.Table, LogStats]:
        """Return a small batch unchanged, too."""
        return rows, measure_rows(rows)

    def late_tables(self, window: Window, stats: LogStats) -> tuple[str, ...]:
        """Return the tables with changes of transactions at or before the former watermark."""
        position = window.mark.position_micros or 0
        return tuple(name for name, table in stats.tables.items() if table.first_micros <= position)

    def finish(self) -> None:
        """Do nothing: a change stream needs no work after the log."""


def _judged_again(raw: DataFrame, replays: Sequence[QuarantinedRecord]) -> DataFrame:
    """Return the raw records of quarantined transactions."""
    transaction_moments = sorted({(record.moment_micros, record.transaction_id or "") for record in replays})
    moments, transactions = zip(*transaction_moments, strict=True)
    schema = pa.schema([("record_timestamp", TIMESTAMP), ("server_transaction_id", pa.string())])
    table = pa.table([list(map(to_datetime, moments)), list(transactions)], schema=schema)
    transaction_ids = F.broadcast(local_frame(raw.sparkSession, table))
    first_moment, last_moment = (F.lit(to_datetime(micros)) for micros in (min(moments), max(moments)))
    data_changes = raw.where(F.col("kind") == RecordKind.DATA_CHANGE.value)
    candidates = data_changes.where(F.col("record_timestamp").between(first_moment, last_moment))
    return candidates.join(transaction_ids, list(TRANSACTION), "left_semi")
