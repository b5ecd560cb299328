"""Files of the spool, and errors of their file system."""

import errno
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc_platform.errors import DiskFull, SpoolUnusable

SUFFIX: Final = ".jsonl"
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
NAME: Final = re.compile(r"(\d{20})-(\d+)-[0-9a-f]{8}\.jsonl", re.ASCII)
"""Name of a file: the offset of its first line, the number of its lines, and an identity."""


@dataclass(frozen=True, order=True)
class SpoolFile:
    """A complete file of the spool.

    Args:
        first_offset: offset of its first line.
        count: number of its lines.
        path: path of the file.
    """

    first_offset: int
    count: int
    path: Path

    @classmethod
    def of(cls, path: Path) -> "SpoolFile | None":
        """Return the file of a path, None if the path has another name than files of a spool."""
        name = NAME.fullmatch(path.name)
        return cls(int(name[1]), int(name[2]), path) if name is not None else None

    @classmethod
    def new(cls, folder: Path, first_offset: int, count: int) -> "SpoolFile":
        """Return a file that is not written yet, under a name that no other file has ever had."""
        name = f"{first_offset:020d}-{count}-{secrets.token_hex(4)}{SUFFIX}"
        return cls(first_offset, count, folder / name)

    @property
    def next_offset(self) -> int:
        """The offset after its last line."""
        return self.first_offset + self.count

    def lines(self) -> Iterator[str]:
        """Yield the events, one per line.

        Raises:
            SpoolUnusable: the file cannot be read.
        """
        with reported_as_unusable(self.path.parent), self.path.open(encoding="utf-8") as file:
            for line in file:
                yield line.removesuffix("\n")


@contextmanager
def reported_as_unusable(folder: Path) -> Iterator[None]:
    """Translate errors of the file system into the platform's error."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise DiskFull(f"{error.strerror}: {folder}") from error
        raise SpoolUnusable(
            f"The spool cannot be read or written ({error.strerror or error}). No event is lost: the source "
            f"or the spool keeps them. Grant both permissions, and start again: {folder}"
        ) from error
