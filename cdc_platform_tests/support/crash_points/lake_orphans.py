"""Files of a lake that no metadata names: what runs that died have left."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table

from cdc_platform.lake.catalog.lake import Lake, own_tables
from cdc_platform.lake.catalog.lake_settings import local_folder
from cdc_platform_tests.support.crash_points.points import path_of


def unreferenced_files(lake: Lake) -> set[Path]:
    """Return the files of a local lake's pipeline that no snapshot or metadata log of its tables names."""
    folder = local_folder(lake.settings.path)
    assert folder is not None
    system_tables = [lake.system_table(name) for name in own_tables(delivers_events=lake.delivers_events)]
    merged_tables = [lake.table(name) for name in lake.table_names()]
    named_files = {
        path
        for table in [*system_tables, *merged_tables]
        if table is not None
        for path in _named_files(table)
    }
    places = [folder / lake.pipeline, folder / lake.system_namespace]
    # Hadoop's checksums belong to the files next to them.
    stored_files = {
        path for place in places for path in place.rglob("*") if path.is_file() and path.suffix != ".crc"
    }
    return stored_files - named_files


def _named_files(table: Table) -> Iterator[Path]:
    yield path_of(table.metadata_location)
    yield from (path_of(entry.metadata_file) for entry in table.metadata.metadata_log)
    manifests = dict[str, ManifestFile]()
    for snapshot in table.metadata.snapshots:
        yield path_of(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    for path, manifest in manifests.items():
        yield path_of(path)
        yield from _data_files(manifest)


@lru_cache(maxsize=4096)
def _data_files(manifest: ManifestFile) -> tuple[Path, ...]:
    """Return the files of a manifest, which never changes and which many states of a lake have."""
    entries = manifest.fetch_manifest_entry(PyArrowFileIO(), discard_deleted=False)
    return tuple(
        path_of(entry.data_file.file_path) for entry in entries if entry.status != ManifestEntryStatus.DELETED
    )
