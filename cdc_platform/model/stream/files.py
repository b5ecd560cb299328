"""Files of a source: which there are, which have been read, and which a cycle reads."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Final

from cdc_platform.model.stream.unread import GONE, FailedRead, failed_reads, unread_path

MOST_FILES: Final = 10_000
"""Files of one cycle; a backlog is read in several, so that an interruption costs little."""
MOST_BYTES: Final = 2 * 1024**3
READ_AGAIN: Final = ""
"""Version, in a read progress, of a file that has been read and is to be read once more; no file has it."""
LOCAL_FILES: Final = 64
LOCAL_BYTES: Final = 1024**2
"""So few are read where a cycle runs: a task of Spark takes longer to begin than they take to read."""
RETRIED_SHARE: Final = 10
"""Of so many files of a cycle, one at most has failed before, while there are others; and so with bytes."""


@dataclass(frozen=True)
class SourceFile:
    """A file as a listing shows it.

    Args:
        path: with its scheme where it is not local.
        folder: the part of the source that it belongs to, such as a Datastream object.
        size_bytes: its size.
        modified_micros: when it was written last.
        reported_version: its version where no listing has it: of read progress that is no file, its text.
        read_bytes: how much of it has been read before, and is not read again.
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
        """The number of its bytes that are read now."""
        return self.size_bytes - self.read_bytes


def identity_in_file(file: SourceFile, place: str) -> str:
    """Return the identity of a record without one of its own, such as a line that is no event."""
    return f"{file.path}@{file.version}#{place}"


def is_of_file(identity: str, path: str) -> bool:
    """Return whether an identity is only a place in some version of a file."""
    return identity.startswith(f"{path}@")


def is_of_version(identity: str, path: str, version: str) -> bool:
    """Return whether an identity is a place in this version of a file."""
    return identity.startswith(f"{path}@{version}#")


def are_few(files: Sequence[SourceFile]) -> bool:
    """Return whether files are so few, and so small, that no task of Spark need read them."""
    return len(files) <= LOCAL_FILES and sum(file.unread_bytes for file in files) <= LOCAL_BYTES


@dataclass(frozen=True)
class FileChoice:
    """The files that a cycle reads; ``is_all`` is False where others are left for the next one."""

    files: tuple[SourceFile, ...]
    is_all: bool


def choose_files(
    listed: Iterable[SourceFile],
    read_progress: Mapping[str, str],
    most_files: int = MOST_FILES,
    most_bytes: int = MOST_BYTES,
    clock_micros: int | None = None,
) -> FileChoice:
    """Return the files that have not been read in their present version, oldest first.

    Those that could not be read are left out while they pause, and have a share of their own, so that many
    of them keep no others waiting. The choice may be all there is without them.

    Args:
        listed: the files that there are.
        read_progress: path to version of those that were read, and what is known of those that could not be.
        most_files: so many at most.
        most_bytes: so much at most, but one file at least.
        clock_micros: the time, which ends pauses; None ends them all.
    """
    unread = [file for file in listed if read_progress.get(file.path) != file.version]
    failed = {file: failure for file in unread if (failure := _failure_of(file, read_progress)) is not None}
    fresh = sorted((file for file in unread if file not in failed), key=_age)
    is_due = {file for file in failed if clock_micros is None or failed[file].is_due(clock_micros)}
    due = sorted(is_due, key=lambda file: (failed[file].micros, file.path))
    if fresh:
        retried_files = min(max(1, most_files // RETRIED_SHARE), most_files - 1)
        retried = _first(due, retried_files, most_bytes // RETRIED_SHARE)
    else:
        retried = _first(due, most_files, most_bytes)
    left_bytes = most_bytes - sum(file.size_bytes for file in retried)
    chosen = _first(fresh, most_files - len(retried), left_bytes)
    return FileChoice((*chosen, *retried), is_all=len(chosen) == len(fresh))


def _age(file: SourceFile) -> tuple[int, str]:
    return file.modified_micros, file.path


def _failure_of(file: SourceFile, read_progress: Mapping[str, str]) -> FailedRead | None:
    text = read_progress.get(unread_path(file.path))
    failure = FailedRead.from_text(text) if text is not None else None
    return failure if failure is not None and failure.version == file.version else None


def _first(files: Iterable[SourceFile], most_files: int, most_bytes: int) -> list[SourceFile]:
    """Return the first of files, within limits; where there may be any, one at least, however large."""
    chosen: list[SourceFile] = []
    total_bytes = 0
    for file in islice(files, most_files):
        total_bytes += file.size_bytes
        if chosen and total_bytes > most_bytes:
            break
        chosen.append(file)
    return chosen


def find_settled(listed: Iterable[SourceFile], read_progress: Mapping[str, str]) -> dict[str, str]:
    """Return the files whose failed reads matter no more, each with its version in the read progress.

    They are gone, or are again what had been read before.
    """
    failed = failed_reads(read_progress)
    if not failed:
        return {}
    unread = {file.path for file in listed if read_progress.get(file.path) != file.version}
    return {path: read_progress.get(path, GONE) for path in sorted(failed.keys() - unread)}


def deal_files(files: Sequence[SourceFile], most_tasks: int) -> list[tuple[SourceFile, ...]]:
    """Return what each task reads: about as many bytes as any other."""
    tasks: list[list[SourceFile]] = [[] for _ in range(max(1, min(most_tasks, len(files))))]
    loads = [0] * len(tasks)
    for file in sorted(files, key=lambda file: (-file.size_bytes, file.path)):
        lightest = loads.index(min(loads))
        tasks[lightest].append(file)
        # Opening a file costs what reading some tens of kilobytes does.
        loads[lightest] += file.size_bytes + 64 * 1024
    return [tuple(task) for task in tasks]


def files_to_json(files: Iterable[SourceFile]) -> str:
    """Return files as text for `files_from_json`."""
    return json.dumps([asdict(file) for file in files])


def files_from_json(text: str) -> tuple[SourceFile, ...]:
    """Return the files of a text that `files_to_json` made."""
    return tuple(SourceFile(**fields) for fields in json.loads(text))
