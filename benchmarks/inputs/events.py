"""Messages of changes as Debezium's connector for PostgreSQL sends them, without schema blocks."""

import json
from collections.abc import Mapping
from typing import Any


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
