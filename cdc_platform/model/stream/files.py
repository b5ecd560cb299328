"""Files of a source, and the choice of the files that a cycle reads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from cdc_platform.model.base.stored_texts import StoredMicros
from cdc_platform.model.stream.unread import FORGOTTEN, FailedRead, failed_reads, unread_path

MAX_FILES: Final = 10_000
"""Maximum number of files per cycle; a backlog takes several, so that an interruption costs little."""
MAX_BYTES: Final = 2 * 1024**3
READ_AGAIN: Final = ""
"""Version, in a read progress, of a file that must be read once more; no file has this version."""
LOCAL_FILES: Final = 64
LOCAL_BYTES: Final = 1024**2
"""Maximum files and bytes that the cycle's own process reads: starting a Spark task takes longer."""
RETRIED_SHARE: Final = 10
"""While others are unread, files that failed get at most one in this many files and bytes of a cycle."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a listing.

    Args:
        path: path, with its scheme unless it is local.
        folder: the part of the source that contains it, such as a Datastream object.
        size_bytes: its size.
        modified_micros: when it was last written.
        reported_version: its text in the read progress, if that is not the version of a listing.
        read_bytes: bytes at its start that were read before and are not read again.
    """

    path: str
    folder: str
    size_bytes: int
    modified_micros: int
    reported_version: str | None = None
    read_bytes: int = 0

    @property
    def version(self) -> str:
        """Text that changes when the file is rewritten."""
        return self.reported_version or f"{self.modified_micros}-{self.size_bytes}"

    @property
    def unread_bytes(self) -> int:
        """Number of bytes still to read."""
        return self.size_bytes - self.read_bytes


def identity_in_file(file: SourceFile, place: str) -> str:
    """Return the identity of a record without one of its own, such as a line that is not an event."""
    return f"{file.path}@{file.version}#{place}"


def is_of_file(identity: str, path: str) -> bool:
    """Return whether an identity is a place in any version of a file."""
    return identity.startswith(f"{path}@")


def is_of_version(identity: str, path: str, version: str) -> bool:
    """Return whether an identity is a place in this version of a file."""
    return identity.startswith(f"{path}@{version}#")


def are_few(files: Sequence[SourceFile]) -> bool:
    """Return whether files are few and small enough to read without Spark."""
    return len(files) <= LOCAL_FILES and sum(file.unread_bytes for file in files) <= LOCAL_BYTES


@dataclass(frozen=True)
class FileChoice:
    """The files that a cycle reads.

    ``left_since_micros`` is the age of the oldest file that the next cycle must read; None if this is all.
    """

    files: tuple[SourceFile, ...]
    left_since_micros: int | None

    @property
    def is_all(self) -> bool:
        """Whether it leaves nothing to the next cycle."""
        return self.left_since_micros is None


def choose_files(
    files: Iterable[SourceFile],
    read_progress: Mapping[str, str],
    max_files: int = MAX_FILES,
    max_bytes: int = MAX_BYTES,
    clock_micros: int | None = None,
) -> FileChoice:
    """Return the files that have not been read in their present version, oldest first.

    Files that could not be read pause before the next attempt, and have their own share: many of them
    do not delay other files. They do not count for ``is_all``.

    Args:
        files: all files of the source.
        read_progress: versions of the files that were read, and failed reads, by path.
        max_files: maximum number of files to choose.
        max_bytes: maximum bytes to choose; the choice has at least one file.
        clock_micros: the time, which decides when a pause is over; None ends all pauses.
    """
    unread = [file for file in files if read_progress.get(file.path) != file.version]
    failures = {file: failure for file in unread if (failure := _failure_of(file, read_progress)) is not None}
    fresh = sorted(
        (file for file in unread if file not in failures), key=lambda file: (file.modified_micros, file.path)
    )
    is_due = {file for file in failures if clock_micros is None or failures[file].is_due(clock_micros)}
    due_files = sorted(is_due, key=lambda file: (failures[file].micros, file.path))
    if fresh:
        retried_files = min(max(1, max_files // RETRIED_SHARE), max_files - 1)
        retries = _first(due_files, retried_files, max_bytes // RETRIED_SHARE)
    else:
        retries = _first(due_files, max_files, max_bytes)
    left_bytes = max_bytes - sum(file.size_bytes for file in retries)
    new_files = _first(fresh, max_files - len(retries), left_bytes)
    left_files = fresh[len(new_files) :]
    return FileChoice((*new_files, *retries), left_files[0].modified_micros if left_files else None)


def _failure_of(file: SourceFile, read_progress: Mapping[str, str]) -> FailedRead | None:
    text = read_progress.get(unread_path(file.path))
    failure = FailedRead.from_text(text) if text is not None else None
    return failure if failure is not None and failure.version == file.version else None


def _first(files: Iterable[SourceFile], max_files: int, max_bytes: int) -> list[SourceFile]:
    """Return the first files within limits; the first one is returned regardless of its size."""
    choice: list[SourceFile] = []
    total_bytes = 0
    for file in islice(files, max_files):
        total_bytes += file.size_bytes
        if choice and total_bytes > max_bytes:
            break
        choice.append(file)
    return choice


def resolved_failures(files: Iterable[SourceFile], read_progress: Mapping[str, str]) -> dict[str, str]:
    """Return the files whose failed reads no longer matter, each with its version in the read progress.

    Such a file has the version again that was read before, or is gone: `FORGOTTEN` if it was never read.
    """
    failures = failed_reads(read_progress)
    if not failures:
        return {}
    unread = {file.path for file in files if read_progress.get(file.path) != file.version}
    return {path: read_progress.get(path, FORGOTTEN) for path in sorted(failures.keys() - unread)}


def deal_files(files: Sequence[SourceFile], max_tasks: int) -> list[tuple[SourceFile, ...]]:
    """Divide files among tasks, with about as many bytes for each."""
    tasks: list[list[SourceFile]] = [[] for _ in range(max(1, min(max_tasks, len(files))))]
    loads = [0] * len(tasks)
    for file in sorted(files, key=lambda file: (-file.size_bytes, file.path)):
        lightest = loads.index(min(loads))
        tasks[lightest].append(file)
        # Opening a file costs as much as reading some tens of kilobytes.
        loads[lightest] += file.size_bytes + 64 * 1024
    return [tuple(task) for task in tasks]


@dataclass(frozen=True, slots=True)
class WaitingTransaction:
    """An incomplete transaction: ``seen`` of ``expected`` events have arrived; ``expected`` may be unknown.

    ``since_micros`` is its commit time, None if unknown.
    """

    transaction_id: str
    since_micros: StoredMicros | None
    seen: int
    expected: int | None


@dataclass(frozen=True, slots=True)
class FileReport:
    """The report on a file, or on a partition or state that the read progress records like a file.

    Args:
        version: its version in the read progress once it has been read.
        is_read: whether it has been read.
        events: number of its events.
        faults: number of its events that cannot be used.
        size_bytes: its size.
        error: the reason why it could not be read.
        tried_micros: when its read failed; None if its source makes no pauses after failed reads.
        waiting: incomplete transactions that hold back later ones.
        again_since_micros: earliest commit time of the transactions that arrived again.
    """

    version: str
    is_read: bool
    events: int = 0
    faults: int = 0
    size_bytes: int = 0
    error: str | None = None
    tried_micros: StoredMicros | None = None
    waiting: tuple[WaitingTransaction, ...] = ()
    again_since_micros: StoredMicros | None = None
