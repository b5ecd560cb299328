"""Generated events of Datastream, in the shapes of the documentation and the samples.

There are no public samples of SQL Server, Salesforce and MongoDB, of MySQL with GTID and of backfills and
deletes of PostgreSQL. These events are made up. Each source has the same scenario, at places in its log that
a comparison of texts would put into the wrong order.
"""

import gzip
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import fastavro

from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.sources.datastream.events.event_runs import EventRun
from cdc_platform_tests.support.datastream.envelopes import Envelope

Event: TypeAlias = dict[str, Any]
"""An event as its JSON line has it, but for the timestamps, which are milliseconds."""
Row: TypeAlias = dict[str, Any]

START_MS: Final = 1_762_000_000_000
GTID: Final = "mysql-gtid"
SOURCES: Final = ("mysql", GTID, "oracle", "postgresql", "sqlserver", "salesforce", "mongodb")
STREAM: Final = "projects/1/locations/europe-west1/streams/generated"


class Step(NamedTuple):
    """One change of the scenario; ``moment`` counts places in the log; halves of a key change share one."""

    moment: int
    change: str
    row: Row


BACKFILL: Final = tuple({"id": n, "v": n, "note": "read"} for n in (1, 2, 3, 4))
STEPS: Final = (
    Step(0, "INSERT", {"id": 5, "v": 50, "note": "new"}),
    Step(1, "UPDATE", {"id": 1, "v": 11, "note": None}),
    Step(2, "DELETE", {"id": 2, "v": 2, "note": "read"}),
    Step(3, "UPDATE", {"id": 1, "v": 12, "note": "second"}),
    Step(4, "DELETE", {"id": 5, "v": 50, "note": "new"}),
    Step(5, "INSERT", {"id": 5, "v": 51, "note": "new again"}),
    Step(6, "UPDATE-DELETE", {"id": 3, "v": 3, "note": "read"}),
    Step(6, "UPDATE-INSERT", {"id": 30, "v": 3, "note": "read"}),
    Step(7, "INSERT", {"id": 7, "v": 7, "note": "short"}),
    Step(8, "DELETE", {"id": 7, "v": 7, "note": "short"}),
)
OUTCOME: Final[Mapping[int, Row]] = {
    1: {"v": 12, "note": "second"},
    4: {"v": 4, "note": "read"},
    5: {"v": 51, "note": "new again"},
    30: {"v": 3, "note": "read"},
}
"""Rows at the end of the scenario, by id."""


def scenario(source: str) -> list[Event]:
    """Return the scenario's events as one of SOURCES writes them, a backfill first."""
    backfill = [_event(source, n, None, Step(-60, "INSERT", row)) for n, row in enumerate(BACKFILL)]
    captured = [_event(source, 8 + n, step.moment, step) for n, step in enumerate(STEPS)]
    return backfill + captured


def _event(source: str, number: int, moment: int | None, step: Step) -> Event:
    name = "mysql" if source == GTID else source
    milliseconds = START_MS + step.moment * 1000
    is_shifted = name == "mysql" and step.change == "UPDATE-INSERT"
    stamp = milliseconds + 1000 * is_shifted
    metadata, place = _METADATA[source](moment)
    change = step.change if name in ("mysql", "oracle") else _PLAIN.get(step.change, step.change)
    payload = _PAYLOADS.get(name, _plain_payload)(step.row, change)
    return {
        "uuid": f"0a1b2c3d-4e5f-6071-8293-a4b5{number:08b}",
        "read_timestamp": stamp + 5_000,
        "source_timestamp": stamp,
        "object": "shop_items",
        "read_method": _read_method(name, is_backfill=moment is None),
        "stream_name": STREAM,
        "schema_key": f"{SOURCES.index(source):040x}",
        "sort_keys": place if name == "mongodb" else [stamp, *place],
        "source_metadata": {
            **metadata,
            "change_type": _CREATED.get(change, change) if name == "mongodb" else change,
            "is_deleted": change in ("DELETE", "UPDATE-DELETE"),
        },
        "payload": payload,
    }


_PLAIN: Final = {"UPDATE-DELETE": "DELETE", "UPDATE-INSERT": "INSERT"}
_CREATED: Final = {"INSERT": "CREATE"}
_METHODS: Final = {
    "mysql": ("mysql-cdc-binlog", "mysql-backfill-fulldump"),
    "oracle": ("oracle-cdc-logminer", "oracle-backfill"),
    "mongodb": ("cdc", "backfill"),
}


def _read_method(name: str, *, is_backfill: bool) -> str:
    return _METHODS.get(name, (f"{name}-cdc", f"{name}-backfill"))[is_backfill]


def _plain_payload(row: Row, _change: str) -> Row:
    return row


def _postgresql_payload(row: Row, change: str) -> Row:
    """The old row is known by its key only, with the default replica identity."""
    return row if change != "DELETE" else {name: row[name] if name == "id" else None for name in row}


def _mongodb_payload(row: Row, change: str) -> Row:
    document = {name: value for name, value in row.items() if name != "id"}
    return {"_id": str(row["id"]), "data": None if change == "DELETE" else document}


_PAYLOADS: Final[Mapping[str, Callable[[Row, str], Row]]] = {
    "postgresql": _postgresql_payload,
    "mongodb": _mongodb_payload,
}


def _mysql(moment: int | None) -> tuple[Row, list[Any]]:
    """Log files pass from six digits to seven, and positions from three to four."""
    file = "" if moment is None else f"mysql-bin.{999_999 + moment // 4}"
    position = 0 if moment is None else 980 + 10 * (moment % 4)
    metadata = {"database": "shop", "table": "items", "primary_keys": ["id"]}
    return {**metadata, "log_file": file, "log_position": position}, [file, position]


def _gtid(moment: int | None) -> tuple[Row, list[Any]]:
    metadata, place = _mysql(moment)
    for field in ("file", "position"):
        metadata[f"binlog_{field}"] = metadata.pop(f"log_{field}")
    return metadata, place


def _oracle(moment: int | None) -> tuple[Row, list[Any]]:
    """The record set falls while the system change number rises, which has four digits and then five."""
    at = -60 if moment is None else moment
    scn = 9_998 + at
    rs_id = "" if moment is None else f" 0x{0x73C9 - moment:06x}.{0x91BE:08x}.0010 "
    metadata = {
        "database": "XE",
        "schema": "SHOP",
        "table": "ITEMS",
        "primary_keys": ["id"],
        "row_id": f"AAAE5XAAEAAAADMA{at % 64:02d}",
        "scn": scn,
        "ssn": 0,
        "rs_id": rs_id,
        "tx_id": None if moment is None else f"CAACAAUKAA{moment}=",
    }
    return metadata, [scn, rs_id, 0]


def _postgresql(moment: int | None) -> tuple[Row, list[Any]]:
    """The high half passes from 9 to 10, hexadecimal F to 10."""
    at = (0xF << 32) + 0xFFFF_FFFC + (moment or 0)
    lsn = "" if moment is None else f"{at >> 32:X}/{at & 0xFFFF_FFFF:X}"
    metadata = {"schema": "shop", "table": "items", "primary_keys": ["id"], "tx_id": 700 + (moment or 0)}
    return {**metadata, "lsn": lsn}, [lsn] if lsn else []


def _sqlserver(moment: int | None) -> tuple[Row, list[Any]]:
    """The middle part passes from FFF to 1000; the key's name differs in case from the payload's."""
    lsn = "" if moment is None else f"00000025:{0xFFC + moment:08x}:0003"
    metadata = {
        "database": "db",
        "schema": "shop",
        "table": "items",
        "replication_index": ["ID"],
        "lsn": lsn,
        "tx_id": f"{moment}",
        "physical_location": [1, 9 + (moment or 0), 3],
    }
    return metadata, [lsn] if lsn else []


def _salesforce(_moment: int | None) -> tuple[Row, list[Any]]:
    return {"object_name": "items", "domain": "shop.example", "primary_keys": ["id"]}, []


def _mongodb(moment: int | None) -> tuple[Row, list[Any]]:
    """The ordinal within a second passes from 9 to 10."""
    metadata = {"database": "shop", "collection": "items", "primary_keys": ["_id"]}
    second = START_MS // 1000
    return metadata, [second - 60, 999_999_999] if moment is None else [second, 5 + moment]


_METADATA: Final[Mapping[str, Callable[[int | None], tuple[Row, list[Any]]]]] = {
    "mysql": _mysql,
    GTID: _gtid,
    "oracle": _oracle,
    "postgresql": _postgresql,
    "sqlserver": _sqlserver,
    "salesforce": _salesforce,
    "mongodb": _mongodb,
}


def to_envelope(event: Mapping[str, Any], position: int = 0) -> Envelope:
    """Return the envelope of an event whose values need no decoding."""
    payload: Mapping[str, Any] | None = event.get("payload")
    micros = {name: event.get(name) for name in ("read_timestamp", "source_timestamp")}
    values = {name: _value(value) for name, value in (payload or {}).items()}
    return Envelope(
        uuid=event.get("uuid", ""),
        read_timestamp_micros=_micros(micros["read_timestamp"]),
        source_timestamp_micros=_micros(micros["source_timestamp"]),
        object_name=event.get("object", ""),
        read_method=event.get("read_method", ""),
        stream_name=event.get("stream_name", ""),
        schema_key=event.get("schema_key", ""),
        sort_keys=tuple(event.get("sort_keys") or ()),
        source_metadata=event["source_metadata"],
        columns=tuple((name, _column_type(value)) for name, value in (payload or {}).items()),
        values=values,
        position=position,
        has_payload=payload is not None,
    )


def to_run(event: Mapping[str, Any], position: int = 0) -> EventRun:
    """Return the same as a run of one event."""
    return to_envelope(event, position).as_run()


def _micros(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds * 1000


def _value(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict) else value


def _column_type(value: Any) -> ColumnType:
    if isinstance(value, dict):
        return ColumnType("JSON")
    return ColumnType("INT64" if isinstance(value, int) else "STRING")


def write_json_lines(path: Path, events: Iterable[Event]) -> None:
    """Write events as Datastream writes JSON, gzipped if the name says so."""
    lines = "".join(f"{json.dumps(json_event(event))}\n" for event in events).encode()
    path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)


def json_event(event: Event) -> Event:
    """Return an event as its JSON line has it."""
    stamps = [name for name in ("read_timestamp", "source_timestamp") if event.get(name) is not None]
    return {**event, **{name: to_rfc3339(event[name] * 1000) for name in stamps}}


def write_avro(path: Path, events: Sequence[Event]) -> None:
    """Write events of one source as Datastream writes Avro: every column is a union with null."""
    records = [{**event, "payload": _avro_payload(event["payload"])} for event in events]
    with path.open("wb") as file:
        fastavro.writer(file, _avro_schema(records), records)


def _avro_payload(payload: Row) -> Row:
    return {name: json.dumps(value) if isinstance(value, dict) else value for name, value in payload.items()}


def _avro_schema(records: Sequence[Event]) -> Row:
    stamp = {"type": "long", "logicalType": "timestamp-millis"}
    texts = ("uuid", "object", "read_method", "stream_name", "schema_key")
    fields: list[Row] = [{"name": name, "type": "string"} for name in texts]
    fields += [{"name": name, "type": stamp} for name in ("read_timestamp", "source_timestamp")]
    fields.append({"name": "sort_keys", "type": {"type": "array", "items": ["string", "long"]}})
    fields += [
        {"name": part, "type": _avro_record(part, [record[part] for record in records])}
        for part in ("source_metadata", "payload")
    ]
    return {"type": "record", "name": records[0]["object"].replace("-", "_"), "fields": fields}


def _avro_record(name: str, rows: Sequence[Row]) -> Row:
    columns = {column: row[column] for row in rows for column in row if row[column] is not None}
    names = dict.fromkeys(column for row in rows for column in row)
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": column, "type": ["null", _avro_type(column, columns.get(column))], "default": None}
            for column in names
        ],
    }


def _avro_type(column: str, value: Any) -> Any:
    if isinstance(value, list):
        return {"type": "array", "items": "string" if isinstance(value[0], str) else "int"}
    if column == "data":
        return {"type": "string", "logicalType": "json"}
    by_type = {bool: "boolean", int: "long", float: "double"}
    return by_type.get(type(value), "string")
