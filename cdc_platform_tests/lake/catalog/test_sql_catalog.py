"""A table is read from its metadata file once, and is never older than the catalog says."""

from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import InputFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import StringType

from cdc_platform.lake.catalog import sql_catalog
from cdc_platform.lake.catalog.files import LakeFile, LakeFiles
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.catalog.sql_catalog import SHARED, share_parts

ROWS: Final = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
TABLE: Final = "p.t"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a lake with a table of three rows."""
    catalog = open_catalog(tmp_path)
    catalog.create_table(TABLE, ROWS.schema).append(ROWS)
    return tmp_path


@pytest.fixture
def catalog(folder: Path) -> Catalog:
    """A catalog that has not loaded the table yet."""
    return open_catalog(folder)


def open_catalog(folder: Path) -> Catalog:
    """Return the catalog as another process opens it."""
    return Lake(LakeSettings(str(folder)), "p").catalog


def test_metadata_file_is_read_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unchanged table is loaded any number of times with one read of its metadata file."""
    opened = list[str]()
    new_input = LakeFiles.new_input

    def record(files: LakeFiles, location: str) -> LakeFile:
        opened.append(location)
        return new_input(files, location)

    monkeypatch.setattr(LakeFiles, "new_input", record)
    locations = {catalog.load_table(TABLE).metadata_location for _ in range(5)}
    assert [*locations] == opened


def test_of_many_tables_the_one_read_first_is_forgotten(
    folder: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One table more than are kept costs one metadata file, not all; one that changed is new again."""
    monkeypatch.setattr(sql_catalog, "TABLES_MAX", 2)
    other = open_catalog(folder)
    for name in ("p.u", "p.v"):
        other.create_table(name, ROWS.schema)
    catalog.load_table(TABLE)
    catalog.load_table("p.u")
    other.load_table(TABLE).append(ROWS)

    read = read_tables(monkeypatch)
    for name in (TABLE, "p.v", TABLE, "p.v", "p.u", "p.v", TABLE):
        catalog.load_table(name)
    # Of `t` and `u`, `t` was read again since it had changed, so `v` displaces `u`, which then displaces `t`.
    assert read == ["t", "v", "u", "t"]


def read_tables(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that takes the name of each table whose metadata file is read from now on."""
    names, read = list[str](), sql_catalog.read_metadata

    def note(file: InputFile, reusable: Iterable[Snapshot]) -> TableMetadata:
        names.append(Path(file.location).parents[1].name)
        return read(file, reusable)

    monkeypatch.setattr(sql_catalog, "read_metadata", note)
    return names


def test_commit_of_another_process_is_seen(folder: Path, catalog: Catalog) -> None:
    """The next load after a commit of another process returns what that process has committed."""
    assert catalog.load_table(TABLE).scan().to_arrow().num_rows == 3
    open_catalog(folder).load_table(TABLE).append(ROWS)
    assert catalog.load_table(TABLE).scan().to_arrow().num_rows == 6


def test_table_that_somebody_holds_stays_as_it_is(catalog: Catalog) -> None:
    """A commit on one object of a table leaves another one, loaded before, at its version."""
    table, other = catalog.load_table(TABLE), catalog.load_table(TABLE)
    other.append(ROWS)
    assert table.scan().to_arrow().num_rows == 3
    assert other.scan().to_arrow().num_rows == 6


def test_dropped_table_is_not_found(folder: Path, catalog: Catalog) -> None:
    """A table that another process has dropped is not found, and its successor is another table."""
    before = catalog.load_table(TABLE).metadata.table_uuid
    other = open_catalog(folder)
    other.drop_table(TABLE)
    with pytest.raises(NoSuchTableError):
        catalog.load_table(TABLE)
    other.create_table(TABLE, ROWS.schema)
    assert catalog.load_table(TABLE).metadata.table_uuid != before


def test_metadata_are_those_of_the_file(folder: Path, catalog: Catalog) -> None:
    """Snapshots shared with the previous version stay correct if another process commits at the same time."""
    catalog.load_table(TABLE)
    other = open_catalog(folder).load_table(TABLE)
    for _ in range(3):
        other.append(ROWS)
    first = other.metadata.snapshots[0].snapshot_id
    other.maintenance.expire_snapshots().by_id(first).commit()
    other.manage_snapshots().create_tag(other.metadata.snapshots[-1].snapshot_id, "kept").commit()
    before = catalog.load_table(TABLE).metadata
    other.append(ROWS)
    loaded = catalog.load_table(TABLE)
    assert FromInputFile.table_metadata(loaded.io.new_input(loaded.metadata_location)) == loaded.metadata
    assert [*map(id, before.snapshots)] == [*map(id, loaded.metadata.snapshots[:-1])]


@pytest.mark.parametrize("part", SHARED)
def test_copies_of_metadata_share_their_parts(catalog: Catalog, part: str) -> None:
    """A deep copy has lists of its own with the same items, also after one has been added."""
    catalog.load_table(TABLE).append(ROWS)
    metadata = share_parts(catalog.load_table(TABLE).metadata)
    copied = deepcopy(metadata)
    assert metadata == copied
    items, copied_items = getattr(metadata, part), getattr(copied, part)
    assert copied_items is not items
    assert [*map(id, items)] == [*map(id, copied_items)] != []
    longer = deepcopy(items + items[:1])
    assert [*map(id, [*items, items[0]])] == [*map(id, longer)]


def test_a_column_of_a_commit_is_not_in_the_version_before(catalog: Catalog) -> None:
    """Versions of a table share their schemas, and each has its own list of them."""
    before = catalog.load_table(TABLE)
    with catalog.load_table(TABLE).update_schema() as update:
        update.add_column("more", StringType())
    after = catalog.load_table(TABLE)
    assert [schema.column_names for schema in before.metadata.schemas] == [["id"]]
    assert [schema.column_names for schema in after.metadata.schemas] == [["id"], ["id", "more"]]
    assert (before.schema().column_names, after.schema().column_names) == (["id"], ["id", "more"])
