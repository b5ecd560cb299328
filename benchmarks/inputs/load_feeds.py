"""Feeds of the load benchmark: rows as records of a change stream, and as events of the other sources."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast

from benchmarks.inputs.events import change_message
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.model.stream.records import ModType, ValueCaptureType
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import START, FakeSource, data_change, window_row

SECOND: Final = 1_000_000
KEY: Final = "id"
NUMBER: Final = "number_"
"""Begins the names of columns of whole numbers; all others are texts."""


class Row(NamedTuple):
    """A new row, or one that takes the place of an older one; values are texts, by column."""

    table: str
    key: int
    values: Mapping[str, str]
    is_new: bool


class Feed(Protocol):
    """A source that a benchmark fills."""

    pipeline: Pipeline

    def send(self, rows: Sequence[Row]) -> None:
        """Let the next cycle find rows."""
        ...


@dataclass
class _SentSource(FakeSource):
    """A change stream in memory that returns what was sent since it was asked last."""

    rows: list[RawRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answer = self.answer_cycle

    def answer_cycle(self, cycle: int, windows: Sequence[ReadWindow]) -> list[RawRow]:
        """Return the records, and a report of each window."""
        reports = [window_row(window, records=len(self.rows)) for window in windows]
        return [{**row, "cycle": cycle} for row in (*self.rows, *reports)]


class SpannerFeed:
    """Records of a change stream, each of one row; all rows that are sent at a time are one transaction."""

    def __init__(self, settings: PipelineSettings, tables: Mapping[str, Iterable[str]]) -> None:
        schemas = {name: schema_of(name, columns) for name, columns in tables.items()}
        self.source = _SentSource(tuple(schemas.values()), START, START + SECOND)
        self.pipeline = Pipeline(
            settings, Lake(settings.lake, settings.name), cast("SpannerSource", self.source)
        )
        self._schemas = schemas

    def send(self, rows: Sequence[Row]) -> None:
        """Put the rows in place of those that were sent before."""
        self.source.now_micros += SECOND
        at_micros = self.source.now_micros - 1
        for row in rows:
            if not row.values.keys() <= {column.name for column in self._schemas[row.table].columns}:
                self._schemas[row.table] = schema_of(row.table, row.values)
        self.source.schemas = tuple(self._schemas.values())
        self.source.rows = [
            data_change(
                row.table,
                ModType.INSERT if row.is_new else ModType.UPDATE,
                ({KEY: str(row.key)}, row.values),
                at_micros=at_micros,
                transaction=str(at_micros),
                sequence=number,
                records=len(rows),
                capture=ValueCaptureType.NEW_ROW,
                schema=self._schemas[row.table],
            )
            for number, row in enumerate(rows)
        ]


def schema_of(name: str, columns: Iterable[str]) -> TableSchema:
    """Return a table of a change stream."""
    types = {column: "INT64" if _is_number(column) else "STRING" for column in columns}
    listed = enumerate(({KEY: "INT64"} | types).items(), start=1)
    return TableSchema(
        name,
        tuple(Column(column, ColumnType(code), column == KEY, place) for place, (column, code) in listed),
    )


def _is_number(column: str) -> bool:
    return column.startswith(NUMBER)


def _payload(row: Row) -> dict[str, int | str]:
    return {KEY: row.key} | {
        name: int(value) if _is_number(name) else value for name, value in row.values.items()
    }


class _Files:
    """Files of JSON lines, each sending a separate file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files, self.events = folder, 0, 0

    def write(self, rows: Sequence[Row], event: Callable[[int, Row], Mapping[str, Any]]) -> None:
        """Write the event of each row, which has its own number."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.files += 1
        lines = (json.dumps(event(self.events + number, row)) for number, row in enumerate(rows, 1))
        (self.folder / f"{self.files:06}.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
        self.events += len(rows)


class DatastreamFeed:
    """Events of MySQL; each table has its own object."""

    def __init__(self, settings: PipelineSettings, folder: Path) -> None:
        self.pipeline, self._folder, self._files = open_pipeline(settings), folder, dict[str, _Files]()

    @staticmethod
    def source(folder: Path) -> DatastreamSettings:
        """Return the settings of a source over a folder."""
        return DatastreamSettings(str(folder), table_name="{table}")

    def send(self, rows: Sequence[Row]) -> None:
        """Write a file for each table."""
        for name, of_table in groupby(sorted(rows, key=lambda row: row.table), key=lambda row: row.table):
            folder = self._folder / f"bank_{name}/2026/09/21/00/00"
            self._files.setdefault(name, _Files(folder)).write(list(of_table), self._event)

    def _event(self, number: int, row: Row) -> Mapping[str, Any]:
        change, moment = "INSERT" if row.is_new else "UPDATE-INSERT", to_rfc3339(START + number * 1000)
        return {
            "uuid": f"{row.table}-{number:032x}",
            "read_timestamp": moment,
            "source_timestamp": moment,
            "object": f"bank_{row.table}",
            "read_method": "mysql-cdc-binlog",
            "stream_name": "projects/1/locations/here/streams/bank",
            "schema_key": "b" * 40,
            "sort_keys": [START // 1000 + number, "mysql-bin.000001", number],
            "source_metadata": {
                "table": row.table,
                "database": "bank",
                "primary_keys": [KEY],
                "log_file": "mysql-bin.000001",
                "log_position": number,
                "change_type": change,
                "is_deleted": False,
            },
            "payload": _payload(row),
        }


class DebeziumFeed:
    """Events of PostgreSQL without transaction metadata."""

    def __init__(self, settings: PipelineSettings, folder: Path) -> None:
        self.pipeline, self._files = open_pipeline(settings), _Files(folder)

    @staticmethod
    def source(folder: Path, tables: Mapping[str, Iterable[str]]) -> DebeziumSettings:
        """Return the settings of a source over a folder, with the types of the tables' columns."""
        types = {
            name: {KEY: "bigint"} | {column: "bigint" if _is_number(column) else "text" for column in columns}
            for name, columns in tables.items()
        }
        return DebeziumSettings(FilesInput(str(folder)), table_name="{table}", columns=types)

    def send(self, rows: Sequence[Row]) -> None:
        """Write a file."""
        self._files.write(rows, self._event)

    def _event(self, number: int, row: Row) -> Mapping[str, Any]:
        op, lsn = "c" if row.is_new else "u", 1_000_000 + number * 100
        return change_message(op, row.table, {KEY: row.key}, _payload(row), lsn, START // 1000 + number)


def open_feed(
    kind: str, name: str, lake: LakeSettings, work: Path, tables: Mapping[str, Iterable[str]]
) -> Feed:
    """Return an empty source of a kind, and a pipeline that reads it.

    Args:
        kind: `spanner`, `datastream` or `debezium`.
        name: the pipeline's name, which no other has.
        lake: where it writes.
        work: folder of the files.
        tables: columns outside the key by table; Datastream's files contain theirs.
    """
    folder = work / name
    folder.mkdir(parents=True)
    if kind == "spanner":
        stream = SpannerSettings("project", "instance", "database", "stream")
        return SpannerFeed(PipelineSettings(name, stream, lake, initial_copy=False), tables)
    if kind == "datastream":
        return DatastreamFeed(PipelineSettings(name, DatastreamFeed.source(folder), lake), folder)
    return DebeziumFeed(PipelineSettings(name, DebeziumFeed.source(folder, tables), lake), folder)


KINDS: Final = ("spanner", "datastream", "debezium")
