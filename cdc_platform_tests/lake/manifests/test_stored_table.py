"""Tables of the lake: scans planned with manifests that are read once, and their present version."""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import DataScan, Table
from pyiceberg.typedef import Properties

from cdc_platform.lake.catalog.catalogs import open_catalog
from cdc_platform.lake.catalog.files import LakeFile, LakeFiles
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.manifests.stored_manifests import KEPT, read_entries, read_manifests

SCHEMA: Final = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with three commits of one file each, of which the second has been deleted."""
    catalog = open_catalog(LakeSettings(str(tmp_path)))
    catalog.create_namespace("n")
    catalog.create_table("n.t", schema=SCHEMA)
    stored_table = catalog.load_table("n.t")
    for number in range(3):
        stored_table.append(pa.table({"id": [number], "v": [f"v{number}"]}, SCHEMA))
    stored_table.delete("id = 1")
    return catalog.load_table("n.t")


class ListedFiles(LakeFiles):
    """The files of a lake, with the locations of those that were opened for reading."""

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self.opened = list[str]()

    def new_input(self, location: str) -> LakeFile:
        """Return a file for reading."""
        self.opened.append(location)
        return super().new_input(location)


@pytest.mark.parametrize(
    ("row_filter", "snapshot"),
    [("true", -1), ("id >= 1", -1), ("id = 1", -1), ("v = 'v1'", 1), ("id < 2", 2)],
)
def test_a_scan_has_the_rows_of_its_version(table: Table, row_filter: str, snapshot: int) -> None:
    """Rows, files and projections are those of pyiceberg's own scan, for each version and filter."""
    number = table.snapshots()[snapshot].snapshot_id
    expected = DataScan(table.metadata, table.io, row_filter, ("v",), snapshot_id=number)
    for _ in range(2):
        scan = table.scan(row_filter, ("v",), snapshot_id=number)
        assert expected.to_arrow().equals(scan.to_arrow())
        assert expected.count() == scan.count()
        planned = [task.file.file_path for task in scan.select("v").plan_files()]
        assert [task.file.file_path for task in expected.plan_files()] == planned


def test_a_manifest_is_read_once(table: Table) -> None:
    """A scan opens the list of manifests, and of these only what no scan has read."""
    table.scan().to_arrow()
    table.append(pa.table({"id": [3], "v": ["v3"]}, SCHEMA))
    for has_new in (True, False):
        table.io = files = ListedFiles(table.io.properties)
        table.scan("id < 0").to_arrow()
        newest = table.snapshots()[-1]
        (new_manifest,) = (
            manifest.manifest_path
            for manifest in read_manifests(LakeFiles(), newest)
            if manifest.added_snapshot_id == newest.snapshot_id
        )
        assert [newest.manifest_list, *([new_manifest] if has_new else [])] == files.opened


def test_entries_of_deleted_files_are_read_if_wanted(table: Table) -> None:
    """Only live entries are kept."""
    deletion = table.snapshots()[-1]
    manifests = read_manifests(table.io, deletion)
    live = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    everything = [
        entry
        for manifest in manifests
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    ]
    assert (len(live), len(everything)) == (2, 3)


def test_what_is_kept_is_bounded_by_columns(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide table takes more room; beyond the bound, the manifests used last stay."""
    KEPT.clear()
    table.scan().to_arrow()
    # Three manifests are left, of an entry with two columns each, and one without live entries.
    used = [file.manifest_path for file in read_manifests(table.io, table.snapshots()[-1])]
    assert {path: 4 if KEPT[path] else 1 for path in used} == {
        path: KEPT.getsizeof(KEPT[path]) for path in used
    }
    before = KEPT.currsize
    monkeypatch.setattr(KEPT, "_Cache__maxsize", before)
    table.append(pa.table({"id": [3], "v": ["v3"]}, SCHEMA))
    newest, *others = read_manifests(table.io, table.snapshots()[-1])
    # One after the other: a scan reads them in threads.
    for manifest in (*others, newest):
        read_entries(table.io, manifest)
    assert before >= KEPT.currsize
    assert others[0].manifest_path not in KEPT
    assert newest.manifest_path in KEPT


def test_a_table_of_another_identity_is_not_a_version_of_it(table: Table) -> None:
    """Another program may drop and create a table while a cycle works on it."""
    assert table.refresh().metadata.table_uuid == table.metadata.table_uuid
    table.catalog.drop_table("n.t")
    table.catalog.create_table("n.t", schema=SCHEMA)
    with pytest.raises(NoSuchTableError, match=r"n\.t was replaced"):
        table.refresh()


def test_an_answer_that_no_catalog_gives_is_not_another_identity(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway may answer for a REST catalog, in which pyiceberg finds values of wrong types."""

    def load_table(_: object) -> Table:
        raise ValueError("1 validation error for TableResponse")

    monkeypatch.setattr(table.catalog, "load_table", load_table)
    with pytest.raises(ValueError, match="TableResponse"):
        table.refresh()
