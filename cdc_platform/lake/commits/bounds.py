"""Bounds of a column, from the manifests of a table, without reading its data files."""

from typing import Final
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from cdc_platform.lake.commits.commits import head
from cdc_platform.lake.manifests.stored_manifests import read_entries, read_manifests

_TRUE: Final = b"\x01"
_TRUE_BY_MANIFEST: Final[dict[tuple[UUID, int], dict[str, bool]]] = {}
"""By table and column, whether the column is true in each manifest, which never changes."""


def is_true_throughout(table: Table, column: str) -> bool:
    """Return whether a column without NULLs is true in all rows; not where a file does not state bounds."""
    snapshot, field_id = head(table), table.schema().find_field(column).field_id
    manifests = read_manifests(table.io, snapshot) if snapshot is not None else ()
    before, is_true = _TRUE_BY_MANIFEST.get((table.metadata.table_uuid, field_id), {}), dict[str, bool]()
    # Entries of many or large manifests are not kept, but this is.
    for manifest in manifests:
        path = manifest.manifest_path
        is_true[path] = before[path] if path in before else _is_true_in(manifest, table.io, field_id)
        if not is_true[path]:
            break
    _TRUE_BY_MANIFEST[table.metadata.table_uuid, field_id] = is_true
    return all(is_true.values())


def _is_true_in(manifest: ManifestFile, io: FileIO, field_id: int) -> bool:
    files = (entry.data_file for entry in read_entries(io, manifest))
    return all((file.lower_bounds or {}).get(field_id) == _TRUE for file in files)
