"""Pipelines over a temporary lake, fed with raw rows or with an in-memory change stream."""

import itertools
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.lake.catalog.lake import Lake, own_tables
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import BYTES, LEFT_SINCE, POSITION, head, read_mark
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.base.schemas import RAW_CHANGE_RECORDS
from cdc_platform.model.base.stored_names import CYCLE, LOG, QUARANTINE, RAW
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.schema.observed_columns import ObservedColumn
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.lineage import Lineage
from cdc_platform.model.stream.ordering_key import record_order
from cdc_platform.model.stream.read_windows import ReadPlan, ReadRequest, ReadWindow, WindowOutcome
from cdc_platform.model.stream.records import ModType, RecordKind, ValueCaptureType
from cdc_platform.model.stream.source_capabilities import CHANGE_STREAM
from cdc_platform.model.stream.window_plans import plan_windows
from cdc_platform.pipeline.checks.invariants import checks_of
from cdc_platform.pipeline.histories.history_build import extend_histories
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_settings import MaintenanceSettings, PipelineSettings
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform.sources.loading import load_tasks, read_tasks
from cdc_platform.sources.spanner.copying.columns import table_arrow_schema
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.sources.spanner.stream.reader import decode_again
from cdc_platform.sources.spark_source import SparkSource
from cdc_platform.sources.task_plan import TaskPlan
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.fake_copies import FakePlanner, FakePlans, RowsAt, read_chunk
from cdc_platform_tests.support.history import RawRow, type_json

Mod = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Keys and new values."""
Answer = Callable[[int, Sequence[ReadWindow]], Sequence[RawRow]]
"""Cycle and windows to the rows that they return."""

CHECKS: Final = checks_of(CHANGE_STREAM)
"""The checks of a pipeline that reads a change stream."""

START: Final = 1_800_000_000_000_000
"""Start of fake streams."""

_serial: Final = itertools.count(1)


ACCOUNTS: Final = table("accounts", {"id": "INT64"}, {"owner": "STRING(MAX)", "balance": "INT64"})
TRANSFERS: Final = table("transfers", {"tid": "STRING(36)"}, {"amount": "INT64"})


@dataclass
class FakeSource(SparkSource):
    """An in-memory source with what the steps of a cycle ask of one; tests set its clock and its answers."""

    schemas: tuple[TableSchema, ...]
    first_micros: int = START
    now_micros: int = START
    answer: Answer = field(default=lambda _cycle, _windows: ())
    rows_at: RowsAt = field(default=lambda _table, _micros: iter(()))
    schema_at: Callable[[int], SchemaRead] | None = None
    plans: FakePlans = field(default_factory=FakePlans)
    nanosecond_columns: tuple[str, ...] = ()

    def list_tables(self) -> tuple[TableSchema, ...]:
        """Return the watched tables."""
        return self.schemas

    def read_schema(self, micros: int) -> SchemaRead:
        """Return the schema at a moment."""
        return (
            self.schema_at(micros) if self.schema_at is not None else SchemaRead(micros, self.schemas, {}, {})
        )

    def decode_again(self, cycle: int, token: str, sequence: str, record_text: str) -> pa.RecordBatch | None:
        """Return the result of Spanner's decoder for a malformed record."""
        return decode_again(cycle, token, sequence, record_text)

    def start_micros(self) -> int:
        """Return the beginning of the stream."""
        return self.first_micros

    def clock_micros(self) -> int:
        """Return the source's present."""
        return self.now_micros

    def plan_copies(self, at_micros: int) -> FakePlanner:
        """Return what cuts tables into chunks."""
        return FakePlanner(self.rows_at, self.plans, at_micros)

    def read_copy(
        self, spark: SparkSession, table: TableSchema, _at_micros: int, chunks: Sequence[str]
    ) -> DataFrame:
        """Return the rows of the chunks."""
        return load_tasks(spark, TaskPlan(table_arrow_schema(table), read_chunk, chunks))

    def plan(self, lineage: Lineage, request: ReadRequest, _read_progress: object) -> ReadPlan:
        """Return the windows of a cycle."""
        return ReadPlan(plan_windows(lineage, request))

    def as_stored(self, table: str, name: str, column: ObservedColumn) -> ObservedColumn:
        """Return a column as the lake keeps it."""
        is_kept = f"{table}.{name}" in self.nanosecond_columns
        return replace(column, type=column.type.with_nanoseconds()) if is_kept else column

    def read_locally(
        self, cycle: int, plan: ReadPlan, max_s: float
    ) -> Generator[pa.RecordBatch, None, None] | None:
        """Yield the answers to a cycle's windows, unless one is long."""
        if any(window.duration_s > max_s for window in plan.windows):
            return None
        return read_tasks(self.plan_tasks(cycle, plan, 1))

    def plan_tasks(self, cycle: int, plan: ReadPlan, max_tasks: int) -> TaskPlan:  # noqa: ARG002  one does
        """Return the answers to a cycle's windows as one task."""
        rows = raw_table(self.answer(cycle, plan.windows))
        return TaskPlan(RAW_CHANGE_RECORDS, pa.Table.to_batches, [rows])


def make_pipeline(  # noqa: PLR0913  a pipeline has many settings, and most tests leave them as they are
    lake: LakeSettings,
    tables: Sequence[TableSchema] = (ACCOUNTS,),
    *,
    name: str | None = None,
    first_micros: int = START,
    maintenance: MaintenanceSettings | None = None,
    copy_chunk_rows: int | None = None,
    options: Mapping[str, TableOptions] | None = None,
) -> Pipeline:
    """Return a pipeline on a fake source, with its own name unless one is given.

    With `copy_chunk_rows` it begins with copies in chunks of so many rows, one chunk_batch of them a step.
    """
    settings = PipelineSettings(
        name=name or f"fake_{next(_serial)}",
        source=SpannerSettings("project", "instance", "database", "stream"),
        lake=lake,
        initial_copy=copy_chunk_rows is not None,
        copy_chunk_rows=copy_chunk_rows or 1,
        copy_s=0,
        maintenance=maintenance or MaintenanceSettings(),
        table_options=options or {},
    )
    source = FakeSource(tuple(tables), first_micros, first_micros)
    return Pipeline(settings, Lake(lake, settings.name), cast("SpannerSource", source))


def reading_by_turns(pipeline: Pipeline, turn: int) -> Pipeline:
    """Return a pipeline whose small cycles Spark's tasks read and commit at odd turns, else this process."""
    local_read_s = 0.0 if turn % 2 else PipelineSettings.local_read_s
    return replace(pipeline, settings=replace(pipeline.settings, local_read_s=local_read_s))


def reading_by_spark(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline whose cycles Spark's tasks read, order and commit, even small ones."""
    return reading_by_turns(pipeline, 1)


def merging_by_spark(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline whose net changes Spark merges, even few."""
    return replace(pipeline, settings=replace(pipeline.settings, local_merge_bytes=0))


def source_of(pipeline: Pipeline) -> FakeSource:
    """Return the fake source of a pipeline."""
    return cast("FakeSource", pipeline.source)


def data_change(  # noqa: PLR0913  a record has many parts, and most tests leave them as they are
    table: str,
    mod_type: ModType,
    *mods: Mod,
    at_micros: int,
    transaction: str,
    sequence: int = 0,
    records: int = 1,
    capture: ValueCaptureType = ValueCaptureType.OLD_AND_NEW_VALUES,
    token: str = "",
    schema: TableSchema | None = None,
) -> RawRow:
    """Return a data change record as the reader writes it, without its cycle, with types of a schema."""
    return {
        "kind": RecordKind.DATA_CHANGE.value,
        "partition_token": token,
        "record_timestamp": to_datetime(at_micros),
        "record_sequence": f"{sequence:08d}",
        "record_order": record_order(f"{sequence:08d}"),
        "server_transaction_id": transaction,
        "is_last_record_in_transaction_in_partition": True,
        "table_name": table,
        "mod_type": mod_type.value,
        "value_capture_type": capture.value,
        "column_types": json.dumps(_described(schema)),
        "mods": [
            {"keys": json.dumps(keys), "new_values": json.dumps(values), "old_values": "{}"}
            for keys, values in mods
        ],
        "number_of_records_in_transaction": records,
        "number_of_partitions_in_transaction": 1,
        "transaction_tag": "",
        "is_system_transaction": False,
    }


def _described(schema: TableSchema | None) -> list[dict[str, Any]]:
    return [
        {
            "name": column.name,
            "type": type_json(column.type),
            "is_primary_key": column.is_primary_key,
            "ordinal_position": column.ordinal,
        }
        for column in (schema.columns if schema is not None else ())
    ]


def window_row(
    planned: ReadWindow, outcome: WindowOutcome = WindowOutcome.COMPLETE, records: int = 0
) -> RawRow:
    """Return the reader's report on a window, without its cycle."""
    return {
        "kind": RecordKind.READ_WINDOW.value,
        "partition_token": planned.token,
        "record_timestamp": to_datetime(planned.end_inclusive_micros),
        "read_window": {
            "start_exclusive": to_datetime(planned.start_exclusive_micros),
            "end_inclusive": to_datetime(planned.end_inclusive_micros),
            "outcome": outcome.value,
            "data_change_records": records,
            "heartbeat_records": 0,
            "child_partitions_records": 0,
            "error": None,
        },
    }


def raw_table(rows: Sequence[RawRow]) -> pa.Table:
    """Return raw rows as Arrow; columns that a row lacks are null."""
    return pa.Table.from_pylist(list(rows), RAW_CHANGE_RECORDS)


def append_raw(
    pipeline: Pipeline,
    cycle: int,
    rows: Sequence[RawRow],
    position_micros: int,
    left_since_micros: int | None = None,
) -> None:
    """Commit raw rows as a cycle, as the reading step does: with their size unless Spark reads them."""
    table = raw_table([{**row, "cycle": cycle} for row in rows])
    properties = {CYCLE: str(cycle), POSITION: str(position_micros)}
    if pipeline.settings.local_read_s:
        properties[BYTES] = str(table.nbytes)
    if left_since_micros is not None:
        properties[LEFT_SINCE] = str(left_since_micros)
    pipeline.lake.system_table(RAW).append(table, snapshot_properties=properties)


def feed(pipeline: Pipeline, until_micros: int, *records: RawRow) -> int:
    """Commit records as the next window of the only partition, and return its cycle."""
    mark = read_mark(pipeline.lake.system_table(RAW))
    after = mark.position_micros if mark.position_micros is not None else START - 1
    report = window_row(ReadWindow("", after, until_micros), records=len(records))
    append_raw(pipeline, mark.cycle + 1, [*records, report], until_micros)
    return mark.cycle + 1


def run_steps(pipeline: Pipeline, spark: SparkSession) -> Cut:
    """Order, merge and publish what has been read, and return the cut."""
    order_changes(pipeline, spark)
    merge_tables(pipeline, spark, pipeline.tables)
    extend_histories(pipeline, spark, pipeline.histories)
    cut = publish_cut(pipeline)
    assert cut is not None
    return cut


def found_table(pipeline: Pipeline, table: str) -> Table:
    """Return a table that must be in the lake."""
    actual = pipeline.lake.table(table)
    assert actual is not None
    return actual


def rows_of(pipeline: Pipeline, table: str, snapshot_id: int | None = None) -> list[dict[str, Any]]:
    """Return a table's rows, sorted by their text; those of `main` when no snapshot is named."""
    rows = found_table(pipeline, table).scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    return sorted(rows, key=repr)


def log_rows(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return the change log in its order."""
    rows = pipeline.lake.system_table(LOG).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: int(row["ordinal"]))


def quarantined_rows(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return the quarantine, sorted by record."""
    rows = pipeline.lake.system_table(QUARANTINE).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["record_id"], row["cycle"]))


def state_of(pipeline: Pipeline) -> dict[str, object]:
    """Return everything that a commit to any of the pipeline's tables would change."""
    own = own_tables(delivers_events=pipeline.lake.delivers_events)
    names = {name: pipeline.lake.system_table(name) for name in own}
    names |= {name: found_table(pipeline, name) for name in pipeline.lake.table_names()}
    return {
        name: (
            {ref: pointer.snapshot_id for ref, pointer in table.metadata.refs.items()},
            [snapshot.model_dump_json() for snapshot in table.metadata.snapshots],
            table.metadata_location,
        )
        for name, table in names.items()
    }


def snapshot_id_of(pipeline: Pipeline, table: str, ref: str = "main") -> int | None:
    """Return the snapshot that a branch of a table points at."""
    snapshot = head(found_table(pipeline, table), ref)
    return snapshot.snapshot_id if snapshot is not None else None
