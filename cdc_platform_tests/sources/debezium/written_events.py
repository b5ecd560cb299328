"""Events written by hand, for what no capture has."""

import json
from typing import Any, Final

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.debezium.rows.checkpoints import Decoded
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput

TABLE: Final = "public.orders"
COLUMNS: Final = {TABLE: {"id": "bigint", "n": "integer", "big": "text", "xs": "smallint[]"}}


def settings_with(**rest: Any) -> DebeziumSettings:
    """Return settings that declare the table's columns."""
    return DebeziumSettings(**{"input": FilesInput("unused"), "columns": COLUMNS, **rest})


def envelope(op: str, **rest: Any) -> dict[str, Any]:
    """Return the value of an event of the table."""
    source = {
        "version": "3.6.3.Final",
        "connector": "postgresql",
        "name": "s",
        "db": "d",
        "schema": "public",
        "table": "orders",
        "txId": 7,
        "lsn": 500,
        "sequence": '["400","500"]',
        "snapshot": "false",
        "ts_ms": 1_700_000_000_000,
        **rest.pop("source", {}),
    }
    return {"op": op, "before": None, "after": None, "source": source, "transaction": None, **rest}


def line(value: Any, key: Any = None, **rest: Any) -> str:
    """Return a line of a file."""
    return json.dumps({"topic": "s.public.orders", "key": key, "value": value, **rest})


def decode_all(*lines: str, decoder: Decoder | None = None, **settings: Any) -> list[Decoded]:
    """Return the events of lines."""
    return list((decoder or Decoder(settings_with(**settings))).decode_lines(lines))


def only_event(*lines: str, **settings: Any) -> SourceEvent:
    """Return the one change of lines."""
    (event,) = decode_all(*lines, **settings)
    assert isinstance(event, SourceEvent), event
    return event


def only_fault(*lines: str, **settings: Any) -> FaultyEvent:
    """Return the one fault of lines."""
    (fault,) = decode_all(*lines, **settings)
    assert isinstance(fault, FaultyEvent), fault
    return fault
