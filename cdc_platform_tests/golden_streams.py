"""Golden streams: recorded change streams as files, with the log and the tables that they must become.

Each folder of `golden/change_streams/` holds `README.md`, `raw.jsonl` (rows of RAW_CHANGE_RECORDS, in which
columns that are not named are null), `log.jsonl` (the essential columns of the change log, in order),
`tables/TABLE.jsonl` (rows by key, values as the source writes them) and, where something cannot be decoded,
`quarantine.jsonl`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cdc_platform.model.base.schemas import RAW_CHANGE_RECORDS
from cdc_platform.model.base.timestamps import from_datetime, from_rfc3339, to_datetime, to_rfc3339
from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema
from cdc_platform.model.stream.lineage import Lineage, advance, begin
from cdc_platform.model.stream.records import RecordKind
from cdc_platform_tests.fake_stream import read_control
from cdc_platform_tests.support.history import NULL_ROW, RawRow
from cdc_platform_tests.typed_values import sorted_by_key, typed_row

FOLDER: Final = Path(__file__).parent / "golden" / "change_streams"
LOG_COLUMNS: Final = (
    "table_name",
    "change_kind",
    "commit_timestamp",
    "transaction_id",
    "record_id",
    "keys",
    "new_values",
)
QUARANTINE_COLUMNS: Final = ("transaction_id", "record_id")


@dataclass(frozen=True)
class GoldenStream:
    """One golden stream; log and quarantine rows have texts only, so that they compare with `==`."""

    name: str
    rows: tuple[RawRow, ...]
    log: tuple[Mapping[str, str], ...]
    quarantine: tuple[Mapping[str, str], ...]
    source_tables: Mapping[str, tuple[Mapping[str, Any], ...]]

    @property
    def schemas(self) -> tuple[TableSchema, ...]:
        """The tables that the data change records describe, by name."""
        columns: dict[str, dict[str, Column]] = {}
        for row in self.rows:
            if row["kind"] == RecordKind.DATA_CHANGE:
                columns.setdefault(row["table_name"], {}).update(_columns(row["column_types"]))
        return tuple(
            TableSchema(name, tuple(sorted(by_name.values(), key=lambda column: column.ordinal)))
            for name, by_name in sorted(columns.items())
        )

    @property
    def cycles(self) -> Mapping[int, tuple[RawRow, ...]]:
        """The rows of each cycle, in the order in which they arrive."""
        return {
            cycle: tuple(row for row in self.rows if row["cycle"] == cycle)
            for cycle in sorted({row["cycle"] for row in self.rows})
        }

    @property
    def start_micros(self) -> int:
        """Where the stream is read from."""
        return (
            min(
                from_datetime(row["read_window"]["start_exclusive"])
                for row in self.rows
                if row["read_window"]
            )
            + 1
        )

    @property
    def lineages(self) -> tuple[Lineage, ...]:
        """The lineage before the first cycle and after each cycle."""
        lineages = [begin(self.start_micros)]
        for cycle, rows in self.cycles.items():
            lineages.append(advance(lineages[-1], cycle, *read_control(rows)))
        return tuple(lineages)

    @property
    def tables(self) -> Mapping[str, list[dict[str, Any]]]:
        """The rows that each table must have at the end, with Python values and sorted by key."""
        return {
            table.name: sorted_by_key(
                table, (typed_row(table, row) for row in self.source_tables[table.name])
            )
            for table in self.schemas
        }


def golden_streams() -> tuple[GoldenStream, ...]:
    """Return all golden streams, by name."""
    return tuple(load_golden(path.parent.name) for path in sorted(FOLDER.glob("*/raw.jsonl")))


def load_golden(name: str) -> GoldenStream:
    """Return the golden stream in a folder of `golden/change_streams/`."""
    folder = FOLDER / name
    return GoldenStream(
        name=name,
        rows=tuple(_raw_row(row) for row in _read(folder / "raw.jsonl")),
        log=tuple(_read(folder / "log.jsonl")),
        quarantine=tuple(_read(folder / "quarantine.jsonl")),
        source_tables={path.stem: tuple(_read(path)) for path in sorted(folder.glob("tables/*.jsonl"))},
    )


def raw_table(rows: Iterable[RawRow]) -> pa.Table:
    """Return rows, of a golden stream or of a fake one, as an Arrow table of RAW_CHANGE_RECORDS."""
    return pa.Table.from_pylist(list(rows), schema=RAW_CHANGE_RECORDS)


def log_row(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the essential columns of a row of CHANGE_LOG, in the form of `GoldenStream.log`."""
    commit_timestamp = to_rfc3339(from_datetime(row["commit_timestamp"]))
    return {name: row[name] for name in LOG_COLUMNS} | {"commit_timestamp": commit_timestamp}


def quarantine_row(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the identity of a row of QUARANTINE, in the form of `GoldenStream.quarantine`."""
    return {name: row[name] for name in QUARANTINE_COLUMNS}


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _raw_row(fields: dict[str, Any]) -> RawRow:
    row = {**NULL_ROW, **fields, "record_timestamp": _moment(fields["record_timestamp"])}
    if row["read_window"] is not None:
        bounds = {name: _moment(row["read_window"][name]) for name in ("start_exclusive", "end_inclusive")}
        row["read_window"] = {"error": None, **row["read_window"], **bounds}
    return row


def _moment(text: str) -> Any:
    return to_datetime(from_rfc3339(text))


def _columns(column_types: str) -> dict[str, Column]:
    return {
        column["name"]: Column(
            column["name"],
            ColumnType.from_json(column["type"]),
            column["is_primary_key"],
            column["ordinal_position"],
        )
        for column in json.loads(column_types)
    }
