"""Messages of changes as Debezium's connector for PostgreSQL sends them, with or without schema blocks."""

import json
from collections.abc import Mapping
from typing import Any, Final

_SOURCE: Final = {
    **dict.fromkeys(
        ("version", "connector", "name", "db", "schema", "table", "sequence", "snapshot"), "string"
    ),
    **dict.fromkeys(("ts_ms", "ts_us", "ts_ns", "txId", "lsn", "xmin"), "int64"),
}


def change_message(
    op: str, table: str, key: Mapping[str, Any], after: Mapping[str, Any], lsn: int, sent_ms: int
) -> dict[str, Any]:
    """Return the message of a change, a separate transaction; with the operation `r`, a snapshot's row."""
    source = {
        "version": "3.6.3.Final",
        "connector": "postgresql",
        "name": "bench",
        "db": "bench",
        "schema": "public",
        "table": table,
        "txId": lsn,
        "lsn": lsn,
        "sequence": json.dumps([str(lsn - 10), str(lsn)]),
        "snapshot": "true" if op == "r" else "false",
        "ts_ms": sent_ms,
    }
    value = {"op": op, "before": None, "after": after, "source": source}
    return {"topic": f"bench.public.{table}", "key": key, "value": value}


def with_schema_blocks(message: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    """Return a message with the schema blocks of its key and value, as with `schemas.enable=true`.

    Args:
        message: from `change_message`.
        types: types of the row's columns, as Kafka Connect names them.
    """
    table = message["topic"]
    key = _block(f"{table}.Key", {name: types[name] for name in message["key"]})
    row, source = _block(f"{table}.Value", types), _block("io.debezium.connector.postgresql.Source", _SOURCE)
    parts = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        {**source, "field": "source"},
        *_fields({"op": "string", "ts_ms": "int64", "ts_us": "int64", "ts_ns": "int64"}),
    ]
    value = {"type": "struct", "fields": parts, "optional": False, "name": f"{table}.Envelope", "version": 2}
    return {
        **message,
        "key": {"schema": key, "payload": message["key"]},
        "value": {"schema": value, "payload": message["value"]},
    }


def _block(name: str, types: Mapping[str, str]) -> dict[str, Any]:
    return {"type": "struct", "fields": _fields(types), "optional": True, "name": name}


def _fields(types: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"type": kind, "optional": True, "field": name} for name, kind in types.items()]
