"""A lake as a text file: schemas, properties, commits and rows of the platform's own tables.

Iceberg's files name each other by absolute paths, so a lake cannot be stored as it is and moved.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from cdc_platform.lake.commits import ancestors_of, head
from cdc_platform.lake.lake import SYSTEM_TABLES, Lake
from cdc_platform.lake.settings import CATALOG, LakeSettings
from cdc_platform.model.timestamps import from_datetime

FOLDER: Final = Path(__file__).parents[1] / "golden"


def store_lake(lake: Lake, file: Path) -> None:
    """Write the platform's tables of a lake as one text file; rows of a tick go with its commit."""
    tables = {name: _describe(lake, name) for name in SYSTEM_TABLES}
    file.write_text(json.dumps(tables, indent=1, default=_plain) + "\n", encoding="utf-8")


def restore_lake(file: Path, settings: LakeSettings, pipeline: str) -> None:
    """Build a pipeline's part of a lake from such a file, without the platform's code."""
    catalog = load_catalog(CATALOG, **settings.pyiceberg_properties())
    catalog.create_namespace_if_not_exists(f"{pipeline}__cdc")
    for name, stored in json.loads(file.read_text(encoding="utf-8")).items():
        schema = Schema.model_validate(stored["schema"])
        table = catalog.create_table(f"{pipeline}__cdc.{name}", schema, properties=stored["properties"])
        for commit in stored["commits"]:
            rows = pa.Table.from_pylist(commit["rows"], schema_to_pyarrow(schema, include_field_ids=False))
            table.append(rows, snapshot_properties=commit["summary"])


def _describe(lake: Lake, name: str) -> dict[str, Any]:
    table = lake.system_table(name)
    rows = table.scan().to_arrow().to_pylist()
    commits = [
        {
            key: value
            for key, value in snapshot.summary.additional_properties.items()
            if key.startswith("cdc.")
        }
        for snapshot in reversed(list(ancestors_of(table, head(table))))
        if snapshot.summary is not None
    ]
    marked = [summary for summary in commits if "cdc.tick" in summary]
    newest = marked[-1]["cdc.tick"] if marked else None
    return {
        "schema": json.loads(table.schema().model_dump_json()),
        "properties": {"format-version": "2", **table.properties},
        "commits": [
            {
                "summary": summary,
                "rows": _rows_of(rows, summary["cdc.tick"], is_last=index == len(marked) - 1),
            }
            for index, summary in enumerate(marked)
            if "tick" in table.schema().column_names or summary["cdc.tick"] == newest
        ],
    }


def _rows_of(rows: list[dict[str, Any]], tick: str, *, is_last: bool) -> list[dict[str, Any]]:
    return [row for row in rows if str(row.get("tick", tick if is_last else None)) == tick]


def _plain(value: object) -> object:
    return from_datetime(value) if isinstance(value, datetime) else str(value)
