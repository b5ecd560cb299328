"""Metadata files of a table: Iceberg's log names the newest, and maintenance deletes the others by time."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import MetadataLogEntry

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.settings import KEPT_BY_TIME

LOGGER = logging.getLogger(__name__)

READ_LOGS: Final = 512
"""So many logs of old metadata files of all tables are kept as they were read: they never change."""


@dataclass(frozen=True)
class _File:
    """A metadata file, and how it is read."""

    path: str
    io: FileIO = field(compare=False)


def keep_by_time(table: Table) -> Table:
    """Let maintenance delete a table's old metadata files, and no longer each commit; return the table then.

    Raises:
        CommitConflict: another run has changed the table at the same time.
    """
    if KEPT_BY_TIME.items() <= table.properties.items():
        return table
    try:
        with table.transaction() as transaction:
            transaction.set_properties({**KEPT_BY_TIME})
    except CommitFailedException as error:
        raise CommitConflict(
            f"Another run changed `{'.'.join(table.name())}` at the same time; run it again."
        ) from error
    return table.refresh()


def delete_old_metadata(table: Table, before_micros: int) -> int:
    """Delete metadata files that the table's log names no longer; return how many were deleted.

    They are found without listing a folder: each metadata file names those before it. The oldest go first, so
    that those which are left, after a crash as well, reach back from the log without a gap.

    Args:
        table: the table as it is now.
        before_micros: a file stays that the next one has replaced since then.
    """
    old = (path for path, replaced_ms in _unlogged(table) if replaced_ms * 1000 < before_micros)
    there = [*takewhile(lambda path: table.io.new_input(path).exists(), old)]
    for number, path in enumerate(reversed(there)):
        try:
            table.io.delete(path)
        except OSError as error:
            LOGGER.warning("A metadata file was not deleted; the next maintenance tries it again. %s", error)
            return number
    return len(there)


def _unlogged(table: Table) -> Iterator[tuple[str, int]]:
    """Yield older files than the log names, newest first, each with when the next one replaced it."""
    log = tuple(table.metadata.metadata_log)
    while log:
        oldest = log[0]
        log = _read_log(_File(oldest.metadata_file, table.io))
        for after, entry in pairwise((oldest, *reversed(log))):
            yield entry.metadata_file, after.timestamp_ms


@lru_cache(maxsize=READ_LOGS)
def _read_log(file: _File) -> tuple[MetadataLogEntry, ...]:
    """Return the log of a metadata file, empty where the file has been deleted."""
    found = file.io.new_input(file.path)
    return tuple(FromInputFile.table_metadata(found).metadata_log) if found.exists() else ()
