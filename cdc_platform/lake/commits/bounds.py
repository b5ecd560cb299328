"""What the bounds of data files say of a column, without a look at the files."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from cdc_platform.lake.commits.commits import head

KEPT_MANIFESTS: Final = 4096
"""Of so many manifests it is known what they say: they never change."""
_TRUE: Final = b"\x01"


@dataclass(frozen=True)
class _Manifest:
    path: str
    file: ManifestFile = field(compare=False)
    io: FileIO = field(compare=False)


def is_true_throughout(table: Table, column: str) -> bool:
    """Return whether a column without NULLs is true in all rows; not where a file does not state bounds."""
    snapshot, field_id = head(table), table.schema().find_field(column).field_id
    manifests = snapshot.manifests(table.io) if snapshot is not None else []
    return all(_is_true_in(_Manifest(file.manifest_path, file, table.io), field_id) for file in manifests)


@lru_cache(maxsize=KEPT_MANIFESTS)
def _is_true_in(manifest: _Manifest, field_id: int) -> bool:
    files = (entry.data_file for entry in manifest.file.fetch_manifest_entry(manifest.io))
    return all((file.lower_bounds or {}).get(field_id) == _TRUE for file in files)
