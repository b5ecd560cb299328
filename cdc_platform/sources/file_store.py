"""Files of a local folder or an object store, accessed through Arrow's file systems."""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from threading import Thread
from typing import Any, BinaryIO, Final

import pyarrow as pa
from pyarrow import fs

from cdc_platform.errors import AccessDenied, LibraryMissing, SettingError, SourceNotFound, SourceUnreachable
from cdc_platform.model.base.store_refusals import DENIED
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.sources.locations import DEADLINE_S, arrow_location, check_location, scheme_of
from cdc_platform.visible import visible_line

_LOG: Final = logging.getLogger(__name__)
TIME_PATH: Final = re.compile(r"(?:/|^)\d{4}/\d{2}/\d{2}/\d{2}/\d{2}$")
_TIME_PREFIX: Final = re.compile(r"(?:/|^)\d{4}(?:/\d{2}){0,4}$")
_FORBIDDEN: Final = re.compile(r"Permission denied|\b403\b")
_QUOTED_NAME: Final = re.compile(r"'[^'\n]*'")
_LACKS_LIBRARY: Final = re.compile(r"load lib(?:jvm|hdfs)")
_BUFFER_BYTES: Final = 4 * 1024**2
"""Buffer of a file that is read in parts: object stores take as long for a few bytes as for this many."""
ROOT_FOLDER: Final = "."
"""Folder of files in the source's folder itself."""

Root = tuple[fs.FileSystem, str]
"""A file system, and the folder's path in it."""


class FileStore:
    """A folder, local or in an object store, and its files.

    Opening it sends a request to the store, which must answer within ``deadline_s``, even with an error.

    Args:
        location: the folder.
        suffixes: suffixes of the files.
        deadline_s: seconds within which the store must give its first answer.
        setting: the source's setting with the location, for messages.

    Raises:
        SettingError: the location cannot be read.
        LibraryMissing: a required library is not installed.
        SourceUnreachable: the store does not answer.
    """

    def __init__(
        self,
        location: str,
        suffixes: tuple[str, ...],
        deadline_s: float = DEADLINE_S,
        setting: str = "path",
    ) -> None:
        self._suffixes, self._setting = suffixes, setting
        self.location = location.rstrip("/")
        self._system, self._root = _open(self.location, deadline_s, setting)
        scheme = scheme_of(location)
        self._scheme = f"{scheme}://" if scheme is not None else ""

    def list_files(self) -> Iterator[SourceFile]:
        """Yield every file with a matching suffix, with its folder; for dated folders, their common parent.

        A subfolder that cannot be listed is yielded like a file: reading it reports the reason.

        Raises:
            SourceNotFound: the folder does not exist.
            AccessDenied: the folder must not be read.
            SourceUnreachable: the store does not answer.
        """
        try:
            infos: Iterable[fs.FileInfo] = self._list(self._root, is_recursive=True)
        except (OSError, pa.ArrowException):
            infos = self._list_by_folder()
        for info in infos:
            if info.type is fs.FileType.Directory:
                folder = _TIME_PREFIX.sub("", self._relative(info.path)) or ROOT_FOLDER
                yield SourceFile(f"{self._scheme}{info.path}", folder, 0, 0)
            elif info.path.endswith(self._suffixes):
                yield SourceFile(
                    path=f"{self._scheme}{info.path}",
                    folder=_without_dates(self._relative(info.path)),
                    size_bytes=info.size,
                    modified_micros=(info.mtime_ns or 0) // 1000,
                )

    def _list(self, folder: str, *, is_recursive: bool) -> list[fs.FileInfo]:
        infos = self._system.get_file_info(fs.FileSelector(folder, recursive=is_recursive))
        file_type = fs.FileType.File
        return [
            info
            for info in infos
            if (not is_recursive or info.type is file_type) and self._has_readable_name(info, folder)
        ]

    def _has_readable_name(self, info: fs.FileInfo, folder: str) -> bool:
        """Return whether Arrow can represent a file's path, without which the file cannot be used."""
        try:
            return bool(info.path)
        except UnicodeDecodeError as error:
            _LOG.warning(
                "A file in `%s` is left out, since its name is not UTF-8: %s. Rename it.",
                f"{self._scheme}{folder}",
                visible_line(error.object.decode(errors="backslashreplace")),
            )
            return False

    def _list_by_folder(self) -> Iterator[fs.FileInfo]:
        """Yield all files, and the folders that cannot be listed; slow, but such a folder hides no other."""
        with _store_errors(self.location, self._setting):
            entries = self._list(self._root, is_recursive=False)
        while entries:
            info = entries.pop()
            if info.type is not fs.FileType.Directory:
                yield info
                continue
            try:
                entries += self._list(info.path, is_recursive=False)
            except (OSError, pa.ArrowException):
                yield info

    def _relative(self, path: str) -> str:
        return path.removeprefix(f"{self._root.rstrip('/')}/")

    def existing(self, paths: Collection[str]) -> frozenset[str]:
        """Return the files that exist.

        Raises:
            AccessDenied: the files must not be read.
            SourceUnreachable: the store does not answer.
        """
        candidates = sorted(paths)
        with _store_errors(self.location, self._setting):
            infos = self._system.get_file_info([path.removeprefix(self._scheme) for path in candidates])
        return frozenset(
            path for path, info in zip(candidates, infos, strict=True) if info.type is fs.FileType.File
        )

    @contextmanager
    def open_stream(self, path: str, begin: int = 0) -> Iterator[BinaryIO]:
        """Yield a file as a stream, from a byte on.

        Raises:
            SourceNotFound: the file no longer exists.
            AccessDenied: the file must not be read.
            SourceUnreachable: the store does not answer.
        """
        with (
            _store_errors(path, self._setting),
            self._stream(path.removeprefix(self._scheme), begin) as stream,
        ):
            yield stream

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            SourceNotFound: the file no longer exists.
            AccessDenied: the file must not be read.
            SourceUnreachable: the store does not answer.
        """
        with self.open_stream(path) as stream:
            return stream.read()

    def _stream(self, path: str, begin: int) -> AbstractContextManager[Any]:
        if not begin:
            stream: AbstractContextManager[Any] = self._system.open_input_stream(
                path, compression=None, buffer_size=_BUFFER_BYTES
            )
            return stream
        file = self._system.open_input_file(path)
        file.seek(begin)
        buffered: AbstractContextManager[Any] = pa.BufferedInputStream(file, _BUFFER_BYTES)
        return buffered


def _open(location: str, deadline_s: float, setting: str) -> Root:
    if scheme_of(location) is None:
        return fs.LocalFileSystem(), location
    check_location(setting, location)
    return _within_deadline(lambda: _connect(location, deadline_s, setting), location, deadline_s)


def _connect(location: str, deadline_s: float, setting: str) -> Root:
    try:
        system, root = fs.FileSystem.from_uri(arrow_location(location, deadline_s))
    except pa.ArrowInvalid as error:
        raise SettingError(setting, f"is not an address that can be read ({error}): {location}") from error
    except (OSError, pa.ArrowException) as error:
        if _LACKS_LIBRARY.search(str(error)):
            raise LibraryMissing(
                f"Files of HDFS need Java and Hadoop's libhdfs on each machine that reads; set JAVA_HOME, "
                f"HADOOP_HOME and CLASSPATH (`hadoop classpath --glob`): {location} ({error})"
            ) from error
        raise store_error_of(error, location, setting) from error
    try:
        system.get_file_info(root)
    except (OSError, pa.ArrowException) as error:
        store_error = store_error_of(error, location, setting)
        if isinstance(store_error, SourceUnreachable):
            raise store_error from error
    return system, root


def _within_deadline(connect: Callable[[], Root], location: str, deadline_s: float) -> Root:
    answer: Future[Root] = Future()

    def wait() -> None:
        try:
            answer.set_result(connect())
        except Exception as error:  # noqa: BLE001  the waiting caller raises it
            answer.set_exception(error)

    # A call of Arrow cannot be cancelled, and no process should wait for its end.
    Thread(target=wait, name="file-store-opens", daemon=True).start()
    try:
        return answer.result(deadline_s)
    except TimeoutError as error:
        raise SourceUnreachable(
            f"The store does not answer within {deadline_s:g} s; check its name, the network and the "
            f"credentials of this machine: {location}"
        ) from error


def _without_dates(relative: str) -> str:
    """Return the folder of a file, without the date and time folders at its end."""
    folder = relative.rpartition("/")[0]
    return TIME_PATH.sub("", folder) or ROOT_FOLDER


@contextmanager
def _store_errors(place: str, setting: str) -> Iterator[None]:
    """Raise the platform's errors for those of a file system."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise store_error_of(error, place, setting) from error


def store_error_of(
    error: Exception, place: str, setting: str
) -> AccessDenied | SourceNotFound | SourceUnreachable:
    """Return the platform's error for a file system's error."""
    text = str(error)
    is_missing = isinstance(error, FileNotFoundError)
    own_words = "" if is_missing else _QUOTED_NAME.sub("", text)
    # Of an unknown key, S3 says that it does not exist.
    if isinstance(error, PermissionError) or DENIED.search(own_words) or _FORBIDDEN.search(own_words):
        return AccessDenied(
            "The store denies access; check the credentials of this machine, and grant this user read access "
            f"to: {place} ({text})"
        )
    if is_missing or "does not exist" in text:
        return SourceNotFound(
            f"There is no such file or folder; check the setting `source.{setting}`: {place}"
        )
    return SourceUnreachable(
        f"It cannot be read now; check the network and the credentials of this machine: {place} ({text})"
    )
