"""Files of a folder, local or of an object store, by a file system of Arrow."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyarrow import fs

from cdc_platform.errors import AccessDenied, SourceNotFound, SourceUnreachable
from cdc_platform.model.files import SourceFile

TIME_PATH: Final = re.compile(r"(?:/|^)\d{4}/\d{2}/\d{2}/\d{2}/\d{2}$")
_TIME_PREFIX: Final = re.compile(r"(?:/|^)\d{4}(?:/\d{2}){0,4}$")
HERE: Final = "."
"""Folder of files that lie in the source's folder itself."""


class FileStore:
    """A folder, local or of an object store, and the files in it."""

    def __init__(self, location: str, suffixes: tuple[str, ...]) -> None:
        self._suffixes = suffixes
        self.location = location.rstrip("/")
        self._system, self._root = _open(self.location)
        self._scheme = f"{location.split('://', 1)[0]}://" if "://" in location else ""

    def list_files(self) -> Iterator[SourceFile]:
        """Yield every file whose name ends as wanted, with its folder: of dated ones, that which they are in.

        A folder in it that may not be listed is yielded as a file is: to read it tells why.

        Raises:
            SourceNotFound: there is no such folder.
            AccessDenied: it may not be read.
            SourceUnreachable: the store does not answer.
        """
        try:
            found: Iterable[fs.FileInfo] = self._list(self._root, is_recursive=True)
        except (OSError, pa.ArrowException):
            found = self._list_by_folder()
        for info in found:
            if info.type is fs.FileType.Directory:
                folder = _TIME_PREFIX.sub("", self._relative(info.path)) or HERE
                yield SourceFile(f"{self._scheme}{info.path}", folder, 0, 0)
            elif info.path.endswith(self._suffixes):
                yield SourceFile(
                    path=f"{self._scheme}{info.path}",
                    folder=_undated(self._relative(info.path)),
                    size_bytes=info.size,
                    modified_micros=(info.mtime_ns or 0) // 1000,
                )

    def _list(self, folder: str, *, is_recursive: bool) -> list[fs.FileInfo]:
        found = self._system.get_file_info(fs.FileSelector(folder, recursive=is_recursive))
        wanted = fs.FileType.File
        return [info for info in found if not is_recursive or info.type is wanted]

    def _list_by_folder(self) -> Iterator[fs.FileInfo]:
        """Yield all files, and the folders that cannot be listed; slow, but such a folder hides no other."""
        try:
            waiting = self._list(self._root, is_recursive=False)
        except (OSError, pa.ArrowException) as error:
            raise told_error(error, self.location) from error
        while waiting:
            info = waiting.pop()
            if info.type is not fs.FileType.Directory:
                yield info
                continue
            try:
                waiting += self._list(info.path, is_recursive=False)
            except (OSError, pa.ArrowException):
                yield info

    def _relative(self, path: str) -> str:
        return path.removeprefix(f"{self._root.rstrip('/')}/")

    def existing(self, paths: Collection[str]) -> frozenset[str]:
        """Return those of these files that are there.

        Raises:
            AccessDenied: they may not be read.
            SourceUnreachable: the store does not answer.
        """
        within = sorted(paths)
        try:
            found = self._system.get_file_info([path.removeprefix(self._scheme) for path in within])
        except (OSError, pa.ArrowException) as error:
            raise told_error(error, self.location) from error
        return frozenset(
            path for path, info in zip(within, found, strict=True) if info.type is fs.FileType.File
        )

    def read(self, path: str) -> bytes:
        """Return what a file holds.

        Raises:
            SourceNotFound: it is gone.
            AccessDenied: it may not be read.
            SourceUnreachable: the store does not answer.
        """
        try:
            with self._system.open_input_stream(path.removeprefix(self._scheme), compression=None) as stream:
                data: bytes = stream.read()
        except (OSError, pa.ArrowException) as error:
            raise told_error(error, path) from error
        return data


def _open(location: str) -> tuple[fs.FileSystem, str]:
    if "://" not in location:
        return fs.LocalFileSystem(), location
    try:
        system, root = fs.FileSystem.from_uri(location)
    except (OSError, pa.ArrowException) as error:
        raise told_error(error, location) from error
    return system, root


def _undated(relative: str) -> str:
    """Return the folder of a file: what lies before its minutes, where it is in a folder of minutes."""
    folder = relative.rpartition("/")[0]
    return TIME_PATH.sub("", folder) or HERE


def told_error(error: Exception, place: str) -> AccessDenied | SourceNotFound | SourceUnreachable:
    """Return our own error for what a file system says."""
    text = str(error)
    if isinstance(error, FileNotFoundError) or "does not exist" in text:
        return SourceNotFound(f"There is no such file or folder; look at the setting `source.path`: {place}")
    if isinstance(error, PermissionError) or "Permission denied" in text or "403" in text:
        return AccessDenied(f"It may not be read; give the platform's user the right to: {place} ({text})")
    return SourceUnreachable(f"It cannot be read now: {place} ({text})")
