"""Datastream's unified types as its documentation has them in Avro and in JSON, and files made of them."""

import json
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from io import BytesIO
from typing import Any, Final

import fastavro
import numpy as np

METADATA: Final = {"table": "t", "schema": "s", "primary_keys": ["c0"], "is_deleted": False, "lsn": "0/1"}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - only for its text
_HOUR_MICROS: Final = 3_600_000_000

Unified = tuple[Any, Any]
"""Name of a unified type, and a value of it as Avro stores it; None is NULL."""


@dataclass(frozen=True)
class UnifiedType:
    """Form of a type: its Avro schema, and the JSON text of a value that Avro stores."""

    schema: Callable[[str], Any]
    to_json: Callable[[Any], str]


def plain(schema: Any, to_json: Callable[[Any], str] = json.dumps) -> UnifiedType:
    """Return a type whose schema is the same for all columns."""
    return UnifiedType(lambda _: schema, to_json)


def record(fields: Sequence[Mapping[str, Any]], to_json: Callable[[Any], str]) -> UnifiedType:
    """Return a type that is a record, which has its own name in each column."""
    return UnifiedType(lambda name: {"type": "record", "name": f"r_{name}", "fields": fields}, to_json)


def quoted(text: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return what writes a value as a JSON text."""
    return lambda value: json.dumps(text(value))


def number(value: float) -> str:
    """Return a float as a JSON number; what JSON has no number for is a text."""
    return (
        json.dumps(repr(value).replace("nan", "NaN").replace("inf", "Infinity"))
        if value - value
        else repr(value)
    )


def moment(micros: int) -> str:
    """Return the text of a moment without a zone."""
    return (_EPOCH + timedelta(microseconds=micros)).isoformat()


def clock(micros: int) -> str:
    """Return the text of a time of day, with six digits."""
    return moment(micros).partition("T")[2]


def offset(millis: int) -> str:
    """Return the text of an offset."""
    return f"{'-' if millis < 0 else '+'}{abs(millis) // 3_600_000:02}:{abs(millis) // 60_000 % 60:02}"


def decimal(unscaled: bytes, scale: int) -> str:
    """Return a decimal as a JSON number with all of its digits."""
    value = int.from_bytes(unscaled, signed=True)
    digits = str(abs(value)).rjust(scale + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def interval(value: Mapping[str, int]) -> str:
    """Return an interval as ISO 8601."""
    seconds, fraction = divmod(value["micros"], 10**6)
    return f"P{value['months']}MT{value['hours']}H{seconds}.{fraction:06}S"


def array(value: Mapping[str, Any]) -> str:
    """Return an array of Datastream's records as a JSON array."""
    return json.dumps([item["elementValue"] for item in value["nestedArray"]])


UNIFIED: Final[Mapping[str, UnifiedType]] = {
    "BOOLEAN": plain("boolean"),
    "INTEGER": plain("int"),
    "LONG": plain("long"),
    "FLOAT": plain("float", lambda value: number(float(str(np.float32(value))))),
    "DOUBLE": plain("double", number),
    "STRING": plain("string"),
    "VARCHAR": plain({"type": "string", "logicalType": "varchar", "length": 20}),
    "NUMBER": plain({"type": "string", "logicalType": "number"}),
    "BYTES": plain("bytes", quoted(lambda value: b64encode(value).decode())),
    "DECIMAL": plain(
        {"type": "bytes", "logicalType": "decimal", "precision": 65, "scale": 30},
        lambda value: decimal(value, 30),
    ),
    "DATE": plain(
        {"type": "int", "logicalType": "date"},
        quoted(lambda days: date.fromordinal(days + date(1970, 1, 1).toordinal()).isoformat()),
    ),
    "TIME": plain({"type": "long", "logicalType": "time-micros"}, quoted(clock)),
    "TIME_INTERVAL": plain({"type": "long", "logicalType": "time-interval-micros"}),
    "TIMESTAMP": plain(
        {"type": "long", "logicalType": "timestamp-micros"}, quoted(lambda value: f"{moment(value)}Z")
    ),
    "DATETIME": record(
        [
            {"name": "date", "type": {"type": "int", "logicalType": "date"}},
            {"name": "time", "type": {"type": "long", "logicalType": "time-micros"}},
        ],
        quoted(lambda value: moment(value["date"] * 24 * _HOUR_MICROS + value["time"])),
    ),
    "TIMESTAMP_WITH_TIMEZONE": record(
        [
            {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "offset", "type": {"type": "int", "logicalType": "time-millis"}},
        ],
        quoted(lambda value: moment(value["timestamp"] + value["offset"] * 1000) + offset(value["offset"])),
    ),
    "TIME_WITH_TIMEZONE": record(
        [
            {"name": "time", "type": {"type": "long", "logicalType": "time-micros"}},
            {"name": "offset", "type": {"type": "int", "logicalType": "time-millis"}},
        ],
        quoted(lambda value: clock(value["time"]) + offset(value["offset"])),
    ),
    "INTERVAL": record(
        [
            {"name": "months", "type": "int"},
            {"name": "hours", "type": "int"},
            {"name": "micros", "type": "long"},
        ],
        quoted(interval),
    ),
    "JSON": plain({"type": "string", "logicalType": "json"}, lambda text: text),
    "ARRAY": UnifiedType(
        lambda name: {
            "type": "record",
            "name": f"multidimensionalArray_{name}",
            "fields": [
                {
                    "name": "nestedArray",
                    "type": ["null", {"type": "array", "items": f"multidimensionalArray_{name}"}],
                },
                {"name": "elementValue", "type": ["null", "long"]},
            ],
        },
        array,
    ),
}


def event_schema(payload: Sequence[tuple[str, Any]], **more: Any) -> dict[str, Any]:
    """Return the schema of an event whose payload has the columns, each a union with null."""
    metadata = [
        {"name": "table", "type": "string"},
        {"name": "schema", "type": "string"},
        {"name": "primary_keys", "type": {"type": "array", "items": "string"}},
        {"name": "is_deleted", "type": ["null", "boolean"]},
        {"name": "lsn", "type": ["null", "string"]},
    ]
    columns = [{"name": name, "type": ["null", schema], "default": None} for name, schema in payload]
    texts = ("uuid", "object", "read_method", "stream_name", "schema_key")
    moments = ("read_timestamp", "source_timestamp")
    fields: list[Mapping[str, Any]] = [{"name": name, "type": "string"} for name in texts]
    fields += [
        {"name": name, "type": {"type": "long", "logicalType": "timestamp-millis"}} for name in moments
    ]
    fields += [
        {"name": "sort_keys", "type": {"type": "array", "items": ["string", "long"]}},
        {
            "name": "source_metadata",
            "type": {"type": "record", "name": "source_metadata", "fields": metadata},
        },
        {"name": "payload", "type": {"type": "record", "name": "payload", "fields": columns}},
    ]
    return {"type": "record", "name": "s_t", "fields": fields, **more}


def event(ordinal: int, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event, with its moments in milliseconds as Avro has them."""
    return {
        "uuid": f"uuid-{ordinal:08}",
        "read_timestamp": 1_762_367_026_698 + ordinal,
        "source_timestamp": 1_762_367_011_393,
        "object": "s_t",
        "read_method": "postgresql-cdc",
        "stream_name": "projects/1/locations/l/streams/s",
        "schema_key": "a" * 40,
        "sort_keys": [1_762_367_011_393, "BD/A0007310"],
        "source_metadata": METADATA,
        "payload": payload,
    }


def avro_file(
    schema: Mapping[str, Any],
    payloads: Sequence[Mapping[str, Any]],
    codec: str = "null",
    block_bytes: int = 16_000,
) -> bytes:
    """Return an Avro file with an event for each payload, whose values are as Avro stores them."""
    file = BytesIO()
    events = [event(ordinal, payload) for ordinal, payload in enumerate(payloads)]
    fastavro.writer(file, dict(schema), events, codec, sync_interval=block_bytes)
    return file.getvalue()


def json_line(ordinal: int, payload: Mapping[str, str]) -> str:
    """Return a line with an event whose payload's values are JSON texts."""
    line = event(ordinal, {})
    for name in ("read_timestamp", "source_timestamp"):
        line[name] = moment(line[name] * 1000) + "Z"
    del line["payload"]
    values = ", ".join(f"{json.dumps(name)}: {text}" for name, text in payload.items())
    return f'{json.dumps(line)[:-1]}, "payload": {{{values}}}}}'


def unified_files(types: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[bytes, bytes]:
    """Return the same events as an Avro file and as JSON lines; columns are called c0, c1 and so on."""
    names = [f"c{ordinal}" for ordinal in range(len(types))]
    schema = event_schema(
        [(name, UNIFIED[kind].schema(name)) for name, kind in zip(names, types, strict=True)]
    )
    avro = avro_file(schema, [dict(zip(names, row, strict=True)) for row in rows])
    lines = [
        json_line(
            ordinal,
            {
                name: "null" if value is None else UNIFIED[kind].to_json(value)
                for name, kind, value in zip(names, types, row, strict=True)
            },
        )
        for ordinal, row in enumerate(rows)
    ]
    return avro, "\n".join(lines).encode()


def float32(value: float) -> float:
    """Return the nearest float of 32 bits."""
    return float(struct.unpack("f", struct.pack("f", value))[0])
