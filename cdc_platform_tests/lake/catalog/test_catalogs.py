"""Every type of catalog writes metadata of format version 3, through no patched class of a library."""

import sys
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from cdc_platform.errors import SettingError, SetupError
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.catalog.catalogs import open_catalog
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import COMPARE_AND_SET, FORMAT_PROPERTY, LakeSettings
from cdc_platform.lake.local_writer.metadata import Version3Metadata

COLUMNS: Final = pa.schema([pa.field("id", pa.int64())])
HIVE: Final = {"type": "hive", "uri": "thrift://127.0.0.1:9083"}
"""No server needs to answer there: the catalog connects when it looks for a table."""


@pytest.fixture
def glue() -> Iterator[dict[str, str]]:
    """The settings of a catalog in a Glue of one's own, on loopback."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    yield {
        "type": "glue",
        "glue.endpoint": address,
        "glue.region": "us-east-1",
        "glue.access-key-id": "me",
        "glue.secret-access-key": "secret",
    }
    # What it knows outlives it in this process.
    urlopen(Request(f"{address}/moto-api/reset", method="POST")).close()  # noqa: S310  ours, on loopback
    server.stop()


@pytest.fixture(params=["sql", "glue"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> LakeSettings:
    """A lake in a local folder, with each type of catalog that can run here."""
    return LakeSettings(str(tmp_path), request.getfixturevalue("glue") if request.param == "glue" else {})


def change_table(catalog: Catalog) -> None:
    """Make a table of version 3, and change it by another commit."""
    catalog.create_namespace("p")
    table = catalog.create_table("p.t", COLUMNS, properties={"format-version": "3"})
    with table.transaction() as transaction:
        transaction.set_properties({"note": "changed"})


def test_tables_of_version_3_are_written(settings: LakeSettings) -> None:
    """A table of version 3 that was made and changed is the same when it is opened again."""
    with closing(open_catalog(settings)) as catalog:
        change_table(catalog)
    with closing(open_catalog(settings)) as catalog:
        actual = catalog.load_table("p.t").metadata
    assert actual.format_version == 3
    assert actual.properties["note"] == "changed"


def test_copies_of_a_table_share_its_snapshots(settings: LakeSettings) -> None:
    """Commits through every type of catalog copy the metadata time and again, but none of the snapshots."""
    catalog = open_catalog(settings)
    catalog.create_namespace("p")
    catalog.create_table("p.t", COLUMNS).append(pa.table({"id": [1]}))
    metadata = catalog.load_table("p.t").metadata
    assert [*map(id, metadata.snapshots)] == [*map(id, deepcopy(metadata).snapshots)] != []


def test_tables_are_listed_with_their_metadata_files(settings: LakeSettings) -> None:
    """A table that is replaced has another one; catalogs other than SQL only list the names."""
    lake = Lake(settings, "p")
    assert lake.table_files() == {}
    table = lake.catalog.create_table("p.t", COLUMNS)
    is_listed = settings.catalog.get("type") is None
    assert lake.table_files() == {"t": table.metadata_location if is_listed else None}


@pytest.mark.parametrize(("files", "own"), [(1, {FORMAT_PROPERTY: "1"}), (2, {})])
def test_a_refused_commit_to_an_own_table_leaves_no_data_files(
    settings: LakeSettings, tmp_path: Path, files: int, own: dict[str, str]
) -> None:
    """A published table keeps them, because its writer commits the same files again."""
    catalog, rows = open_catalog(settings), pa.table({"id": [1]})
    catalog.create_namespace("p")
    properties = {**COMPARE_AND_SET, "format-version": "2", **own}
    table = catalog.create_table("p.t", COLUMNS, properties=properties)
    outdated = catalog.load_table("p.t")
    table.append(rows)
    with pytest.raises(CommitFailedException):
        outdated.append(rows)
    assert files == len([*tmp_path.rglob("*.parquet")])


def test_pyiceberg_itself_is_unchanged(settings: LakeSettings) -> None:
    """The library's own catalog still refuses to write version 3: when it no longer does, ours can go."""
    open_catalog(settings).close()
    with closing(load_catalog("other", **settings.pyiceberg_properties())) as catalog:
        assert not isinstance(catalog, Version3Metadata)
        with pytest.raises(NotImplementedError, match="1551"):
            change_table(catalog)


def written(catalog: Catalog, metadata: TableMetadata, path: Path) -> TableMetadata:
    """Return what a file holds into which a catalog has written a table's metadata."""
    assert isinstance(catalog, Version3Metadata)
    io = PyArrowFileIO()
    catalog._write_metadata(metadata, io, path.as_uri())  # noqa: SLF001  what its commit calls
    return FromInputFile.table_metadata(io.new_input(path.as_uri()))


def test_hive_writes_version_3(tmp_path: Path) -> None:
    """A commit to a Hive metastore writes its metadata file as one to a SQL catalog does."""
    with closing(open_catalog(LakeSettings(str(tmp_path)))) as catalog:
        change_table(catalog)
        metadata = catalog.load_table("p.t").metadata
    hive = open_catalog(LakeSettings(str(tmp_path), HIVE))
    assert metadata == written(hive, metadata, tmp_path / "v3.metadata.json")


def test_catalog_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the setting, and how to install what the type of catalog needs."""
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.hive", None)
    settings = LakeSettings(str(tmp_path), HIVE)
    with pytest.raises(SetupError, match=r"lake\.catalog.*pyiceberg\[hive\]"), reaching(settings):
        open_catalog(settings)


@pytest.mark.parametrize("kind", ["dynamodb", "bigquery", ""])
def test_other_catalogs_are_refused(tmp_path: Path, kind: str) -> None:
    """A catalog that Spark cannot share is refused before a table is made in it."""
    with pytest.raises(SettingError, match=r"lake\.catalog\.type.*sql, rest, hive or glue"):
        open_catalog(LakeSettings(str(tmp_path), {"type": kind, "uri": "x"}))
