"""pyiceberg's access to the lake's files: a missing file is reported as damage, with its name.

Object stores answer after tens of milliseconds, so no request is made whose answer is known.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import Any, Final, cast

from cachetools import LRUCache
from pyarrow import BufferReader
from pyarrow.fs import FileInfo, FileSelector, FileSystem
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.serializers import Compressor
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.errors import LakeDamaged
from cdc_platform.lake.catalog.object_store import find_store

MAX_FILE_BYTES: Final = 1024**2
"""Maximum size of a file that is fetched whole: it takes less time than another request for a part."""
MAX_CONTENT_BYTES: Final = 32 * 1024**2
"""Maximum size of all files that a process keeps, the most recently used."""
_RETRY_STRATEGY: Final = "s3.retry-strategy-impl"
_contents: Final = LRUCache[str, bytes](MAX_CONTENT_BYTES, len)
_contents_lock: Final = Lock()


class LakeFile(PyArrowFile):
    """A file in the lake's metadata."""

    def open(self, seekable: bool = True) -> InputStream:
        """Open the file; a small one in an object store is fetched once, since it never changes.

        Raises:
            LakeDamaged: the file is missing, and this process has not fetched it.
        """
        try:
            return super().open(seekable) if find_store(self.location) is None else self._open_kept()
        except FileNotFoundError as error:
            raise LakeDamaged.missing(self.location) from error

    def _open_kept(self) -> InputStream:
        with _contents_lock:
            content = _contents.get(self.location)
        if content is None:
            with ExitStack() as stack:
                stream: Any = stack.enter_context(super().open())
                if stream.size() > MAX_FILE_BYTES:
                    stack.pop_all()
                    return cast("InputStream", stream)
                content = stream.read()
            with _contents_lock:
                _contents[self.location] = content
        return cast("InputStream", BufferReader(content))


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

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        """Return a file system that writes a small file by one request instead of three."""
        system = super()._initialize_s3_fs(netloc)
        if _RETRY_STRATEGY in self.properties:
            return system  # what pickle copies lacks it
        # pyiceberg has no property for this option.
        make, (options,) = system.__reduce__()
        return make({**options, "allow_delayed_open": True})

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
