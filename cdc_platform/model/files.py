"""Files of a source: which there are, which have been read, and which a tick reads."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

MOST_FILES: Final = 10_000
"""Files of one tick; a backlog is read in several, so that an interruption costs little."""
MOST_BYTES: Final = 2 * 1024**3
READ_AGAIN: Final = ""
"""Version, in a ledger, of a file that has been read and is to be read once more; no file has it."""


@dataclass(frozen=True)
class SourceFile:
    """A file as a listing shows it.

    Args:
        path: with its scheme where it is not local.
        folder: the part of the source that it belongs to, such as a Datastream object.
        size_bytes: its size.
        modified_micros: when it was written last.
        generation: what the store counts at each writing; None where it does not.
    """

    path: str
    folder: str
    size_bytes: int
    modified_micros: int
    generation: str | None = None

    @property
    def version(self) -> str:
        """Text that changes when the file is written anew."""
        return self.generation or f"{self.modified_micros}-{self.size_bytes}"


@dataclass(frozen=True)
class FileChoice:
    """The files that a tick reads; ``is_all`` is False where others are left for the next one."""

    files: tuple[SourceFile, ...]
    is_all: bool


def choose_files(
    listed: Iterable[SourceFile],
    ledger: Mapping[str, str],
    most_files: int = MOST_FILES,
    most_bytes: int = MOST_BYTES,
) -> FileChoice:
    """Return the files that have not been read in their present version, oldest first.

    Args:
        listed: the files that there are.
        ledger: path to version of those that have been read.
        most_files: so many at most.
        most_bytes: so much at most, but one file at least.
    """
    unread = [file for file in listed if ledger.get(file.path) != file.version]
    unread.sort(key=lambda file: (file.modified_micros, file.path))
    chosen: list[SourceFile] = []
    total_bytes = 0
    for file in unread[:most_files]:
        total_bytes += file.size_bytes
        if chosen and total_bytes > most_bytes:
            break
        chosen.append(file)
    return FileChoice(tuple(chosen), is_all=len(chosen) == len(unread))


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
