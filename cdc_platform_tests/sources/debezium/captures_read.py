"""Reads what a real connector has sent, and what the database then had."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.debezium.rows.checkpoints import Decoded
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.sources.debezium.wire.lines import read_lines
from cdc_platform.sources.debezium.wire.messages import Message, parse_line

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "debezium"


@dataclass(frozen=True)
class Truth:
    """A table as PostgreSQL had it at the end: its columns, and its rows as PostgreSQL's own texts."""

    types: dict[str, str]
    generated: frozenset[str]
    keys: tuple[str, ...]
    rows: list[dict[str, str | None]]


def truth_of(name: str) -> dict[str, Truth]:
    """Return the tables of a capture, by SCHEMA.TABLE."""
    with gzip.open(GOLDEN / f"{name}.truth.json.gz", "rt", encoding="utf-8") as file:
        content = json.load(file)
    return {table: _truth(item) for table, item in content.items() if "columns" in item}


def _truth(item: dict[str, Any]) -> Truth:
    names = [column["name"] for column in item["columns"]]
    return Truth(
        {column["name"]: column["type"] for column in item["columns"]},
        frozenset(column["name"] for column in item["columns"] if column["generated"]),
        tuple(column["name"] for column in item["columns"] if column["is_key"]),
        [dict(zip(names, row, strict=True)) for row in item["rows"]],
    )


def settings_for(tables: dict[str, Truth], **rest: Any) -> DebeziumSettings:
    """Return settings that declare every column as the database's catalog does."""
    fields = {"input": FilesInput("unused"), "columns": {name: table.types for name, table in tables.items()}}
    return DebeziumSettings(**{**fields, **rest})


def read_messages(path: Path, first_position: int = 0) -> list[Message | FaultyEvent]:
    """Return the messages of a file, in its order; empty lines have no position."""
    with path.open("rb") as stream:
        lines = [line.text for line in read_lines(stream) if line.text.strip()]
    return [parse_line(line, position) for position, line in enumerate(lines, start=first_position)]


def decode(name: str, settings: DebeziumSettings, *, without_headers: bool = False) -> list[Decoded]:
    """Return the content of a capture."""
    decoder, decoded = Decoder(settings), list[Decoded]()
    for message in read_messages(GOLDEN / f"{name}.jsonl.gz"):
        assert not isinstance(message, FaultyEvent)
        decoded += decoder.decode(replace(message, headers=None) if without_headers else message)
    return decoded


def events_in(decoded: list[Decoded]) -> list[SourceEvent]:
    """Return the changes, in the order that their keys of order give them."""
    return sorted(
        (item for item in decoded if isinstance(item, SourceEvent)), key=lambda event: event.ordering_key
    )


def faults_in(decoded: list[Decoded]) -> list[FaultyEvent]:
    """Return the events that were refused."""
    return [event for event in decoded if isinstance(event, FaultyEvent)]
