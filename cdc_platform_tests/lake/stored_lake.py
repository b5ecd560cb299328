"""A lake as a text file: schemas, properties, commits and rows of the platform's own tables.

Iceberg's files name each other by absolute paths, so a lake cannot be stored as it is and moved.
"""

import json
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from cdc_platform.lake.catalog.lake import SYSTEM_TABLES, Lake
from cdc_platform.lake.catalog.lake_settings import CATALOG, LakeSettings
from cdc_platform.lake.commits.commits import ancestors_of, head
from cdc_platform.model.base.stored_names import CYCLE
from cdc_platform.model.base.timestamps import from_datetime

FOLDER: Final = Path(__file__).parents[1] / "golden"


def store_lake(lake: Lake, file: Path) -> None:
    """Write the platform's tables of a lake as one text file; rows of a cycle go with its commit."""
    tables = {name: _describe(lake, name) for name in SYSTEM_TABLES}
    file.write_text(json.dumps(tables, indent=1, default=_plain) + "\n", encoding="utf-8")


def restore_lake(file: Path, settings: LakeSettings, pipeline: str) -> None:
    """Build a pipeline's part of a lake from such a file, without the platform's code."""
    Path(settings.path).mkdir(parents=True, exist_ok=True)
    catalog = load_catalog(CATALOG, **settings.pyiceberg_properties())
    catalog.create_namespace_if_not_exists(f"{pipeline}__cdc")
    for name, stored in json.loads(file.read_text(encoding="utf-8")).items():
        schema = Schema.model_validate(stored["schema"])
        table = catalog.create_table(f"{pipeline}__cdc.{name}", schema, properties=stored["properties"])
        for commit in stored["commits"]:
            rows = [{key: _with_pairs(value) for key, value in row.items()} for row in commit["rows"]]
            arrow = pa.Table.from_pylist(rows, schema_to_pyarrow(schema, include_field_ids=False))
            table.append(arrow, snapshot_properties=commit["summary"])


def _describe(lake: Lake, name: str) -> dict[str, Any]:
    table = lake.system_table(name)
    rows = table.scan().to_arrow().to_pylist()
    summaries = [
        snapshot.summary.additional_properties
        for snapshot in reversed(list(ancestors_of(table, head(table))))
        if snapshot.summary is not None
    ]
    marks = [{key: summary[key] for key in summary if key.startswith("cdc.")} for summary in summaries]
    cycles = [mark for mark in marks if CYCLE in mark]
    if "cycle" not in table.schema().column_names:
        # Each commit replaces the table as a whole.
        commits = [{"summary": cycles[-1], "rows": rows}]
    else:
        commits = [
            {"summary": mark, "rows": [row for row in rows if str(row["cycle"]) == mark[CYCLE]]}
            for mark in cycles
        ]
    return {
        "schema": json.loads(table.schema().model_dump_json()),
        "properties": {"format-version": "2", **table.properties},
        "commits": commits,
    }


def _with_pairs(value: Any) -> Any:
    """Return a value from JSON with the entries of a map as pairs, which Arrow wants."""
    is_map = isinstance(value, list) and value and isinstance(value[0], list)
    return [tuple(entry) for entry in value] if is_map else value


def _plain(value: object) -> object:
    return from_datetime(value) if isinstance(value, datetime) else str(value)


def forget_metadata(settings: LakeSettings, namespace: str, table: str) -> None:
    """Let the catalog name a metadata file of a table that never was."""
    assert settings.catalog_file is not None
    with closing(sqlite3.connect(settings.catalog_file)) as catalog, catalog:
        catalog.execute(
            "UPDATE iceberg_tables SET metadata_location = metadata_location || '.gone' "
            "WHERE table_namespace = ? AND table_name = ?",
            (namespace, table),
        )
