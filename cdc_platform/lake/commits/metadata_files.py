"""Metadata files of a table: Iceberg's log names the newest; maintenance deletes older ones by age."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Final

import msgspec
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from cdc_platform.lake.catalog.files import read_metadata_file

LOGGER = logging.getLogger(__name__)

READ_LOGS: Final = 512
"""Maximum number of cached logs of previous metadata files, of all tables together; they never change."""


MISSING_IN_A_ROW: Final = 5
"""Missing files in a row that end the search: maintenance deletes the oldest first, and leaves no gaps."""


class _LogEntry(msgspec.Struct, frozen=True, rename="kebab"):
    """An entry of a metadata log: a file, and when another one replaced it."""

    metadata_file: str
    timestamp_ms: int


class _Metadata(msgspec.Struct, rename="kebab"):
    """The needed part of a metadata file: parsing its snapshots would take most of the time."""

    metadata_log: tuple[_LogEntry, ...] = ()


@dataclass(frozen=True)
class _File:
    """A metadata file, and the access to it."""

    path: str
    io: FileIO = field(compare=False)


def delete_old_metadata(table: Table, before_micros: int) -> int:
    """Delete metadata files that the table's log no longer names, and return how many were deleted.

    No folder is listed: each metadata file names those before it. The oldest are deleted first, so that the
    remaining ones form a chain without a gap that starts at the log, even after a crash.

    Args:
        table: the table as it is now.
        before_micros: files that were replaced at this time or later stay.
    """
    paths = (path for path, replaced_ms in _find_unlogged(table) if replaced_ms * 1000 < before_micros)
    return delete_files(table.io, [*_existing(table.io, paths)][::-1])


def delete_files(io: FileIO, paths: Sequence[str]) -> int:
    """Delete files in order up to the first that cannot be deleted, and return their number."""
    for number, path in enumerate(paths):
        try:
            io.delete(path)
        except OSError as error:
            LOGGER.warning("A file could not be deleted; the next maintenance tries again. %s", error)
            return number
    return len(paths)


def list_unlogged(table: Table) -> Iterator[str]:
    """Yield the existing metadata files before those in the table's log, newest first."""
    return _existing(table.io, (path for path, _ in _find_unlogged(table)))


def _existing(io: FileIO, paths: Iterable[str]) -> Iterator[str]:
    """Yield the files that exist, until some in a row are missing: those before them are gone, too."""
    missing = 0
    for path in paths:
        if io.new_input(path).exists():
            missing = 0
            yield path
        elif (missing := missing + 1) == MISSING_IN_A_ROW:
            return


def _find_unlogged(table: Table) -> Iterator[tuple[str, int]]:
    """Yield the files before those in the log, newest first, each with the time of its replacement in ms."""
    log = tuple(_LogEntry(entry.metadata_file, entry.timestamp_ms) for entry in table.metadata.metadata_log)
    files = {entry.metadata_file for entry in log}
    while log:
        # A file that another tool has deleted does not hide those before it: its successors name them, too.
        logs = ((entry, _read_log(_File(entry.metadata_file, table.io))) for entry in log[:MISSING_IN_A_ROW])
        reader, log = next((pair for pair in logs if pair[1]), (log[0], ()))
        for after, entry in pairwise((reader, *reversed(log))):
            if entry.metadata_file not in files:
                files.add(entry.metadata_file)
                yield entry.metadata_file, after.timestamp_ms


@lru_cache(maxsize=READ_LOGS)
def _read_log(file: _File) -> tuple[_LogEntry, ...]:
    """Return the log of a metadata file, empty if the file was deleted or truncated."""
    source = file.io.new_input(file.path)
    if not source.exists():
        return ()
    try:
        return msgspec.json.decode(read_metadata_file(source), type=_Metadata).metadata_log
    except msgspec.DecodeError:
        return ()
