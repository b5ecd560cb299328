"""The lake's files as pyiceberg writes them, each write and deletion a crash point."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_stack
from typing import Any, Final, Self

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from cdc_platform.lake.catalog.files import LakeFiles
from cdc_platform.lake.catalog.lake_settings import BUSY_TIMEOUT_S, LakeSettings
from cdc_platform_tests.support.crash_points.points import POINTS, EffectFailure, EffectKind, Failure

NUMBER: Final = "crash point"
CATALOG_ROW: Final = "the catalog, by pyiceberg"
NUMBERS: Final = {Failure.FULL: errno.ENOSPC, Failure.READ_ONLY: errno.EROFS, Failure.BROKEN: errno.EIO}
SQLITE_TEXTS: Final = {
    Failure.FULL: "database or disk is full",
    Failure.READ_ONLY: "attempt to write a readonly database",
    Failure.BROKEN: "disk I/O error",
}


@contextmanager
def as_file_error() -> Iterator[None]:
    """Let a file fail as the file system does it."""
    try:
        yield
    except EffectFailure as error:
        raise OSError(NUMBERS[error.failure], error.failure.value, error.target) from None


class MortalFiles(LakeFiles):
    """Opens the lake's files as the platform does."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file that can be written."""
        file = super().new_output(location)
        system, path, buffered = file._filesystem, file._path, file._buffer_size  # noqa: SLF001  known from nothing else
        return _MortalFile(location, path, system, buffered)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        path = location if isinstance(location, str) else location.location
        with as_file_error():
            POINTS.have(EffectKind.DELETE, path, lambda: super(MortalFiles, self).delete(location))


class _MortalFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        with as_file_error():
            number = POINTS.before(EffectKind.WRITE, self.location)
        return _MortalStream(super().create(overwrite), number, Path(self._path))


class _MortalStream:
    """A file that is written, as Python's libraries and pyarrow use it."""

    def __init__(self, stream: Any, number: int, path: Path) -> None:
        self._stream, self._number, self._path = stream, number, path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """Close the file, or leave half of it."""
        if self._stream.closed:
            return
        self._stream.close()
        if POINTS.is_torn(self._number):
            os.truncate(self._path, self._path.stat().st_size // 2)
        with as_file_error():
            POINTS.after(self._number)


def _before_commit(session: Session) -> None:
    try:
        session.info[NUMBER] = POINTS.before(EffectKind.COMMIT, CATALOG_ROW)
    except EffectFailure as error:
        if error.failure is Failure.REFUSED:
            raise CommitFailedException(error.failure.value) from None
        text = SQLITE_TEXTS[error.failure]
        raise OperationalError("COMMIT", {}, sqlite3.OperationalError(text)) from None


def _after_commit(session: Session) -> None:
    POINTS.after(session.info[NUMBER])


def _before_look(_connection: object, _cursor: object, statement: str, *_context: object) -> None:
    if POINTS.counts_looks and statement.startswith("SELECT"):
        place = f"{CATALOG_ROW}, in {_looking_function()}"
        POINTS.have(EffectKind.LOOK, place, lambda: None)


def _looking_function() -> str:
    """Return the function of the pipeline that looks at the catalog, or the innermost one of the platform."""
    frames = [(frame.f_globals.get("__name__", ""), frame.f_code.co_name) for frame, _ in walk_stack(None)]
    functions = [(module, name) for module, name in frames if module.startswith("cdc_platform.")]
    of_pipeline = [name for module, name in functions if module.startswith("cdc_platform.pipeline.")]
    return next(iter(of_pipeline or [name for _, name in functions]), "a library")


def watch_catalogs() -> None:
    """Make each commit of a SQL catalog of pyiceberg in this process a crash point, and each look a place."""
    if not event.contains(Session, "before_commit", _before_commit):
        event.listen(Engine, "before_cursor_execute", _before_look)
        event.listen(Session, "before_commit", _before_commit)
        event.listen(Session, "after_commit", _after_commit)


def mortal_lake(folder: Path) -> LakeSettings:
    """Return the settings of a lake in a folder whose effects are crash points."""
    files = f"{MortalFiles.__module__}.{MortalFiles.__qualname__}"
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}?timeout={BUSY_TIMEOUT_S}",
        "py-io-impl": files,
    }
    return LakeSettings(str(folder), catalog)
