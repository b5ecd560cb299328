"""Comments of a source's tables and columns, as catalogs and engines can hold them."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.schema.table_ddl import MAX_DOC_CHARACTERS, describe_columns

COLUMNS = pa.schema([("ID", pa.int64()), ("a", pa.string()), ("b.c", pa.string())])
LONG = "é" * (MAX_DOC_CHARACTERS + 1)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of a lake."""
    return Lake(LakeSettings(str(tmp_path)), "p").catalog.create_table("p.t", COLUMNS)


def docs_of(table: Table) -> dict[str, str | None]:
    """Return the docs of the columns."""
    return {field.name: field.doc for field in table.schema().fields}


def test_comments_become_docs_that_every_catalog_takes(table: Table) -> None:
    """Glue and Hive refuse longer ones, and Glue those with line breaks; a table's own keeps them."""
    comments = {
        "": "Orders.\nAll of them.",
        "id": "Its\n  number.",
        "a": LONG,
        "b.c": "A\tbell: \x07\U0001f514",
    }
    described = describe_columns(table, ["id"], comments)
    assert docs_of(described) == {
        "ID": "primary key: Its number.",
        "a": f"{'é' * (MAX_DOC_CHARACTERS - 1)}…",
        "b.c": "A bell: \\u0007\U0001f514",
    }
    assert described.properties["comment"] == comments[""]
    again = describe_columns(described, ["id"], comments)
    assert again.metadata_location == described.metadata_location


def test_comments_that_are_gone_leave_the_mark_of_the_key(table: Table) -> None:
    """A source that states no comments leaves what there is; one that has none any more clears it."""
    described = describe_columns(table, ["ID"], {"": "T", "ID": "I", "a": "A"})
    assert describe_columns(described, ["ID"], {}) is described
    cleared = describe_columns(described, ["ID"], {"": ""})
    assert {name: doc for name, doc in docs_of(cleared).items() if doc} == {"ID": "primary key"}
    assert cleared.properties["comment"] == ""
    assert describe_columns(cleared, ["ID"], {"": ""}).metadata_location == cleared.metadata_location
