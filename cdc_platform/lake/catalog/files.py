"""pyiceberg's access to the lake's files: a missing file is reported as damage, with its name."""

from collections.abc import Iterable
from pathlib import Path

from pyarrow.fs import FileInfo, FileSelector, FileSystem
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.serializers import Compressor
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.errors import LakeDamaged


class LakeFile(PyArrowFile):
    """A file in the lake's metadata."""

    def open(self, seekable: bool = True) -> InputStream:
        """Open the file.

        Raises:
            LakeDamaged: the file is missing.
        """
        try:
            return super().open(seekable)
        except FileNotFoundError as error:
            raise LakeDamaged.missing(self.location) from error


def read_metadata_file(file: InputFile) -> bytes:
    """Return the JSON of a metadata file; its name shows whether it is compressed."""
    compressor = Compressor.get_compressor(file.location)
    with file.open() as stream, compressor.stream_decompressor(stream) as text:
        return text.read()


class LakeFiles(PyArrowFileIO):
    """Opens the lake's files in any storage."""

    def new_input(self, location: str) -> LakeFile:
        """Return a file for reading."""
        file = super().new_input(location)
        system, path, buffered = file._filesystem, file._path, file._buffer_size  # noqa: SLF001  known from nothing else
        return LakeFile(location, path, system, buffered)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file, and the one with its checksums that Spark's Hadoop writes next to it in a folder.

        Raises:
            OSError: the file is missing, or cannot be deleted.
        """
        uri = location if isinstance(location, str) else location.location
        scheme, _, path = self.parse_location(uri, self.properties)
        if scheme == "file":
            # First: after a crash in between, the file is still there to be deleted again.
            file = Path(path)
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        super().delete(location)


def has_files_before(io: FileIO, folder: str, before_micros: int) -> bool:
    """Return whether a folder or one of its subfolders has a file that was last written before a time.

    Args:
        io: access to the folder; if it cannot list files, the result is True.
        folder: its location.
        before_micros: the time.
    """
    if not isinstance(io, PyArrowFileIO):
        return True
    _, files = _list_files(io, folder)
    return any(file.mtime_ns is not None and file.mtime_ns < before_micros * 1000 for file in files)


def delete_files(io: FileIO, folder: str, beginning: str) -> None:
    """Delete the files of a folder and its subfolders whose names have a beginning.

    If ``io`` cannot list files, they stay.
    """
    if not isinstance(io, PyArrowFileIO):
        return
    system, files = _list_files(io, folder)
    for file in files:
        if file.base_name.startswith(beginning):
            system.delete_file(file.path)


def _list_files(io: PyArrowFileIO, folder: str) -> tuple[FileSystem, list[FileInfo]]:
    """Return the files in a folder and its subfolders, and their file system."""
    scheme, netloc, path = io.parse_location(folder, io.properties)
    system = io.fs_by_scheme(scheme, netloc)
    return system, system.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))


def files_of(io: FileIO, snapshots: Iterable[Snapshot]) -> set[str]:
    """Return the files that snapshots consist of: rows, manifests and lists of manifests."""
    files, manifests = set[str](), dict[str, ManifestFile]()
    for snapshot in snapshots:
        files.add(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(io)}
    for manifest in manifests.values():
        files |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io)}
    return files | manifests.keys()
