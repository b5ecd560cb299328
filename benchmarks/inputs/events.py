"""Messages of changes as Debezium's connector for PostgreSQL sends them, with or without schema blocks."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
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


def with_transactions(
    messages: Iterable[dict[str, Any]], topic: str, table: str, size: int
) -> Iterator[dict[str, Any]]:
    """Yield rows of a snapshot as they are, and the changes after them in transactions of some size.

    Args:
        messages: messages of one table, whose values have no schema blocks.
        topic: topic of the beginnings and ends, as with `provide.transaction.metadata`.
        table: the table, as `SCHEMA.TABLE`.
        size: changes of each transaction.
    """
    remaining = iter(messages)
    for message in remaining:
        if message["value"]["op"] == "r":
            yield message
        else:
            yield from _transaction([message, *islice(remaining, size - 1)], topic, table)


def _transaction(changes: Sequence[dict[str, Any]], topic: str, table: str) -> Iterator[dict[str, Any]]:
    first, last = changes[0]["value"]["source"], changes[-1]["value"]["source"]
    name, previous = first["txId"], str(first["lsn"] - 10)
    yield _boundary("BEGIN", f"{name}:{first['lsn']}", topic, first["ts_ms"])
    for number, change in enumerate(changes, start=1):
        source = change["value"]["source"]
        source |= {
            "txId": name,
            "ts_ms": last["ts_ms"],
            "sequence": json.dumps([previous, str(source["lsn"])]),
        }
        order = {"total_order": number, "data_collection_order": number}
        change["value"]["transaction"] = {"id": f"{name}:{source['lsn']}", **order}
        yield change
    counts = [{"data_collection": table, "event_count": len(changes)}]
    yield _boundary("END", f"{name}:{last['lsn'] + 5}", topic, last["ts_ms"], len(changes), counts)


def _boundary(
    status: str,
    name: str,
    topic: str,
    sent_ms: int,
    events: int | None = None,
    counts: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    value = {
        "status": status,
        "id": name,
        "event_count": events,
        "data_collections": counts,
        "ts_ms": sent_ms,
    }
    return {"topic": topic, "key": {"id": name}, "value": value}
