"""Lakes with a history, made by the platform's own commits without Spark, for what only reads lakes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from cdc_platform.components.loading import load_settings
from cdc_platform.lake.commits.commits import NEXT_ORDINAL, POSITION, STATS
from cdc_platform.lake.state.control import save_lineage
from cdc_platform.lake.state.cuts import Cut, append_cut
from cdc_platform.model.base.names import ROOT_TOKEN, lake_table_name
from cdc_platform.model.base.schemas import CHANGE_LOG
from cdc_platform.model.base.stored_names import CYCLE, LOG
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.stream.lineage import begin
from cdc_platform.model.stream.read_windows import ReadWindow, WindowOutcome
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import append_raw, window_row

ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("balance", pa.int64())])
SECOND = 1_000_000


@dataclass
class WatchedLake:
    """The lake of a pipeline whose cycles are committed one by one, at moments of choice."""

    pipeline: Pipeline
    position_micros: int
    cycle: int = 0
    cuts: int = 0
    ordinal: int = 0
    snapshots: dict[str, int] = field(default_factory=dict)

    @classmethod
    def begin(cls, defs: Path, start_micros: int) -> "WatchedLake":
        """Return the lake of a file's pipeline, which reads a change stream from a moment on."""
        pipeline = open_pipeline(load_settings(defs))
        save_lineage(pipeline.lake, begin(start_micros))
        return cls(pipeline, start_micros - 1)

    def run_cycle(
        self,
        position_micros: int,
        changes: Mapping[str, int],
        *,
        children: Mapping[str, Sequence[str]] | None = None,
        published_micros: int | None = None,
    ) -> None:
        """Commit a cycle: all live partitions up to a position, changes of tables, and the cut.

        Args:
            position_micros: the position of the cut.
            changes: number of changes by table; each adds a row.
            children: tokens of partitions that begin now, with the parents, which end now.
            published_micros: when the cut is published; right at its position when None.
        """
        self.cycle += 1
        append_raw(
            self.pipeline, self.cycle, self._raw_rows(position_micros, children or {}), position_micros
        )
        trace_lineage(self.pipeline)
        self._append_log(position_micros, changes)
        for table, count in changes.items():
            self._append_rows(table, count)
        self.cuts += 1
        published = position_micros if published_micros is None else published_micros
        append_cut(
            self.pipeline.lake, Cut(self.cuts, position_micros, self.cycle, dict(self.snapshots), published)
        )
        self.position_micros = position_micros

    def _raw_rows(self, position_micros: int, children: Mapping[str, Sequence[str]]) -> list[RawRow]:
        ended = {parent for parents in children.values() for parent in parents}
        live = [part for part in trace_lineage(self.pipeline).partitions.values() if part.is_live]
        rows = [
            window_row(
                ReadWindow(part.token, part.position_micros, position_micros),
                WindowOutcome.FINISHED if part.token in ended else WindowOutcome.COMPLETE,
            )
            for part in live
        ]
        return [
            *rows,
            *(_announcement(token, parents, position_micros) for token, parents in children.items()),
        ]

    def _append_log(self, position_micros: int, changes: Mapping[str, int]) -> None:
        tables = [table for table, count in changes.items() for _ in range(count)]
        rows = [
            {
                "cycle": self.cycle,
                "ordinal": self.ordinal + number,
                "table_name": table,
                "commit_timestamp": to_datetime(position_micros),
            }
            for number, table in enumerate(tables)
        ]
        self.ordinal += len(tables)
        properties = {
            CYCLE: str(self.cycle),
            POSITION: str(position_micros),
            NEXT_ORDINAL: str(self.ordinal),
            STATS: json.dumps({table: [count, 0, 0] for table, count in changes.items()}),
        }
        self.pipeline.lake.system_table(LOG).append(
            pa.Table.from_pylist(rows, CHANGE_LOG), snapshot_properties=properties
        )

    def _append_rows(self, name: str, count: int) -> None:
        identifier = f"{self.pipeline.name}.{lake_table_name(name)}"
        table = self.pipeline.lake.catalog.create_table_if_not_exists(identifier, ROWS)
        ids = range(self.ordinal, self.ordinal + count)
        rows = pa.table({"id": list(ids), "balance": [0] * count}, ROWS)
        table.append(rows, snapshot_properties={CYCLE: str(self.cycle)})
        snapshot = table.current_snapshot()
        assert snapshot is not None
        self.snapshots[name] = snapshot.snapshot_id


def _announcement(token: str, parents: Sequence[str], at_micros: int) -> RawRow:
    """Return the record of a child partition that begins right after its parents."""
    return {
        "kind": RecordKind.CHILD_PARTITIONS.value,
        "partition_token": parents[0] if parents else ROOT_TOKEN,
        "record_timestamp": to_datetime(at_micros + 1),
        "child_partitions": [{"token": token, "parent_partition_tokens": list(parents)}],
    }
