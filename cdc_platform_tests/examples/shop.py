"""The files of examples/datastream, as a stream of MySQL writes them; they are made up.

Run it as `python -m cdc_platform_tests.examples.shop` to write them again.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import fastavro

FOLDER: Final = Path(__file__).parents[2] / "examples" / "datastream" / "files"
STREAM: Final = "projects/545418958905/locations/europe-west1/streams/shop"
MIDNIGHT: Final = datetime(2026, 11, 20, tzinfo=UTC)
KEYS: Final = {
    "customers": "1d2ab1bcde3e861022798fbded72121b56007c52",
    "customers with phone": "7e55c3a0f9b1d2648c0a9e5f3b7d16428ac90e31",
    "orders": "c4f20b7d91e6a3584d7be2091f6c83a5d0e7b64c",
}
"""The `schema_key` of each set of columns."""

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """Change of a row; ``position`` is its place in the log, None for a backfill.

    ``minute`` is when, counted from midnight; ``uuid`` numbers the events, and repeated ones share it.
    """

    uuid: int
    kind: str
    position: int | None
    minute: float
    row: Values


@dataclass(frozen=True)
class ExampleFile:
    """A file of one table: its folder's minute, columns, number and events, and a line that broke off."""

    table: str
    minute: int
    columns: str
    number: str
    changes: Sequence[Change]
    suffix: str = "avro"
    broken: str = ""

    @property
    def path(self) -> Path:
        """Where Datastream writes it, below the stream's folder."""
        folder = (MIDNIGHT + timedelta(minutes=self.minute)).strftime("%Y/%m/%d/%H/%M")
        method = _read_method(self.changes[0])
        return Path(
            f"shop_{self.table}", folder, f"{KEYS[self.columns]}_{method}_{self.number}.{self.suffix}"
        )


def customer(number: int, name: str, email: str, credit: str, born: date, **more: str | None) -> Values:
    """Return a row of `customers`; MySQL's DATE arrives as the moment of its midnight."""
    moment = datetime(born.year, born.month, born.day, tzinfo=UTC)
    return {"id": number, "name": name, "email": email, "credit": Decimal(credit), "born": moment, **more}


def order(number: int, customer_id: int, total: str, placed_at: str, status: str) -> Values:
    """Return a row of `orders`."""
    row = {"id": number, "customer_id": customer_id, "total": Decimal(total), "placed_at": placed_at}
    return {**row, "status": status}


ADA: Final = date(1985, 12, 10)
BEN: Final = date(1991, 3, 2)
CLEO: Final = date(1979, 7, 30)
DORA: Final = date(2001, 1, 15)
SHIPPED: Final = order(1001, 1, "49.90", "2026-11-19T17:20:31Z", "shipped")
MOVED: Final = order(1002, 2, "120.00", "2026-11-20T06:58:02Z", "new")

FILES: Final = (
    ExampleFile(
        "customers",
        480,
        "customers",
        "1296257282_1_0",
        (
            Change(1, "INSERT", None, 480, customer(1, "Ada", "ada@example.com", "100.00", ADA)),
            Change(2, "INSERT", None, 480, customer(2, "Ben", "ben@example.com", "0.00", BEN)),
            Change(3, "INSERT", None, 480, customer(3, "Cleo", "cleo@example.com", "12.50", CLEO)),
        ),
    ),
    ExampleFile(
        "customers",
        485,
        "customers",
        "1296257282_4_0",
        (
            Change(10, "INSERT", 59_424, 485, customer(4, "Dora", "dora@example.com", "5.00", DORA)),
            Change(11, "UPDATE-INSERT", 59_734, 485, customer(2, "Ben", "ben@example.org", "0.00", BEN)),
            Change(12, "DELETE", 60_112, 486, customer(3, "Cleo", "cleo@example.com", "12.50", CLEO)),
        ),
    ),
    # It came last, into the folder of an earlier minute, and reports what the file above has overtaken.
    ExampleFile(
        "customers",
        482,
        "customers",
        "1296257282_9_0",
        (
            Change(8, "UPDATE-INSERT", 9_877, 482, customer(2, "Ben", "ben@example.net", "0.00", BEN)),
            Change(9, "UPDATE-INSERT", 9_999, 482, customer(3, "Cleo", "cleo@example.com", "99.99", CLEO)),
        ),
    ),
    ExampleFile(
        "customers",
        550,
        "customers with phone",
        "1296257282_11_0",
        (
            Change(
                20,
                "UPDATE-INSERT",
                71_008,
                550,
                customer(1, "Ada", "ada@example.com", "75.25", ADA, phone="+49 30 1234567"),
            ),
        ),
    ),
    ExampleFile(
        "orders",
        480,
        "orders",
        "881162559_1_0",
        (
            Change(4, "INSERT", None, 480, order(1001, 1, "49.90", "2026-11-19T17:20:31Z", "new")),
            Change(5, "INSERT", None, 480, MOVED),
        ),
        "jsonl.gz",
    ),
    ExampleFile(
        "orders",
        486,
        "orders",
        "881162559_3_0",
        (
            Change(13, "INSERT", 60_480, 486, order(1003, 4, "7.05", "2026-11-20T08:06:11Z", "new")),
            Change(14, "UPDATE-INSERT", 60_933, 487, SHIPPED),
            Change(14, "UPDATE-INSERT", 60_933, 487, SHIPPED),
        ),
        "jsonl.gz",
    ),
    ExampleFile(
        "orders",
        489,
        "orders",
        "881162559_5_0",
        (
            Change(15, "UPDATE-DELETE", 61_377, 489, MOVED),
            # MySQL's second half of a key change is a second late.
            Change(16, "UPDATE-INSERT", 61_377, 489 + 1 / 60, {**MOVED, "id": 2002}),
        ),
        "jsonl.gz",
        '{"uuid": "5b0ffaeb-b16e-4c8c-91d4-815500010001", "read_timestamp": "2026-11-20T08:1',
    ),
)


def _read_method(change: Change) -> str:
    return "mysql-backfill-fulldump" if change.position is None else "mysql-cdc-binlog"


def events_of(file: ExampleFile) -> Iterator[dict[str, Any]]:
    """Yield the events of a file; moments are datetimes, amounts decimals."""
    for change in file.changes:
        happened = MIDNIGHT + timedelta(minutes=change.minute)
        log_file = "" if change.position is None else "mysql-bin.000014"
        yield {
            "uuid": f"5b0ffaeb-b16e-4c8c-91d4-8155{change.uuid:08b}",
            "read_timestamp": happened + timedelta(seconds=4),
            "source_timestamp": happened,
            "object": f"shop_{file.table}",
            "read_method": _read_method(change),
            "stream_name": STREAM,
            "schema_key": KEYS[file.columns],
            "sort_keys": [int(happened.timestamp() * 1000), log_file, change.position or 0],
            "source_metadata": {
                "table": file.table,
                "database": "shop",
                "primary_keys": ["id"],
                "log_file": log_file,
                "log_position": change.position or 0,
                "change_type": change.kind,
                "is_deleted": change.kind in ("DELETE", "UPDATE-DELETE"),
            },
            "payload": dict(change.row),
        }


def to_bytes(file: ExampleFile) -> bytes:
    """Return the content of a file."""
    events = list(events_of(file))
    if file.suffix == "avro":
        buffer = BytesIO()
        fastavro.writer(buffer, _avro_schema(file), events, sync_marker=file.number.encode().ljust(16)[:16])
        return buffer.getvalue()
    lines = [_json_line(event) for event in events]
    text = "\n".join([*lines, *([file.broken] if file.broken else [])])
    return gzip.compress(f"{text}\n".encode(), mtime=0)


def _json_line(event: Mapping[str, Any]) -> str:
    """Return an event as Datastream writes JSON: amounts are numbers with all their digits."""
    total = event["payload"]["total"]
    moments = {
        name: event[name].strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"
        for name in ("read_timestamp", "source_timestamp")
    }
    text = json.dumps({**event, **moments, "payload": {**event["payload"], "total": "TOTAL"}})
    return text.replace('"TOTAL"', str(total))


def _avro_schema(file: ExampleFile) -> dict[str, Any]:
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    metadata = {
        "type": "record",
        "name": "source_metadata",
        "fields": [
            *({"name": name, "type": "string"} for name in ("table", "database")),
            {"name": "primary_keys", "type": {"type": "array", "items": "string"}},
            {"name": "log_file", "type": ["null", "string"]},
            {"name": "log_position", "type": ["null", "long"]},
            {"name": "change_type", "type": ["null", "string"]},
            {"name": "is_deleted", "type": ["null", "boolean"]},
        ],
    }
    types = {name: _AVRO_TYPES.get(name, "string") for name in file.changes[0].row}
    columns = [{"name": name, "type": ["null", kind], "default": None} for name, kind in types.items()]
    return {
        "type": "record",
        "name": f"shop_{file.table}",
        "fields": [
            {"name": "uuid", "type": "string"},
            *({"name": name, "type": moment} for name in ("read_timestamp", "source_timestamp")),
            *(
                {"name": name, "type": "string"}
                for name in ("object", "read_method", "stream_name", "schema_key")
            ),
            {"name": "sort_keys", "type": {"type": "array", "items": ["string", "long"]}},
            {"name": "source_metadata", "type": metadata},
            {"name": "payload", "type": {"type": "record", "name": "payload", "fields": columns}},
        ],
    }


_AVRO_TYPES: Final[Mapping[str, Any]] = {
    "id": "int",
    "credit": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    "born": {"type": "long", "logicalType": "timestamp-micros"},
}


def main() -> None:
    """Write the files."""
    for file in FILES:
        path = FOLDER / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_bytes(file))


if __name__ == "__main__":
    main()
