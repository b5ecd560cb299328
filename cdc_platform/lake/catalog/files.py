"""The lake's files as pyiceberg reads them: a missing one is reported as damage, with its name."""

from pyarrow.fs import FileSelector
from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.serializers import Compressor

from cdc_platform.errors import LakeDamaged


class LakeFile(PyArrowFile):
    """A file that the lake's metadata names."""

    def open(self, seekable: bool = True) -> InputStream:
        """Open the file.

        Raises:
            LakeDamaged: it is not there.
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
    """Opens the lake's files, wherever they lie."""

    def new_input(self, location: str) -> LakeFile:
        """Return a file that can be opened for reading."""
        file = super().new_input(location)
        system, path, buffered = file._filesystem, file._path, file._buffer_size  # noqa: SLF001  known from nothing else
        return LakeFile(location, path, system, buffered)


def has_files_before(io: FileIO, folder: str, before_micros: int) -> bool:
    """Return whether a folder, or one below it, has a file that was last written before a moment.

    Args:
        io: the access to the folder; True for one that cannot list files.
        folder: its location.
        before_micros: the moment.
    """
    if not isinstance(io, PyArrowFileIO):
        return True
    scheme, netloc, path = io.parse_location(folder, io.properties)
    files = io.fs_by_scheme(scheme, netloc).get_file_info(
        FileSelector(path, allow_not_found=True, recursive=True)
    )
    return any(file.mtime_ns is not None and file.mtime_ns < before_micros * 1000 for file in files)
