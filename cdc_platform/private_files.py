"""Files and folders that only the user may read, because they hold rows and secrets."""

import os
import stat
from pathlib import Path
from typing import BinaryIO, Final, Literal

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
PART: Final = ".part"


def open_private(path: Path, mode: Literal["wb", "ab"]) -> BinaryIO:
    """Open a file of mode 0600 for writing: "wb" replaces an existing file, "ab" appends to it.

    An existing file gets the mode, too. Anything but a file, such as a terminal, keeps its own mode.

    Raises:
        OSError: the file cannot be opened, or belongs to another user.
    """
    end = os.O_APPEND
    if mode == "wb":
        # A new file: a process that has opened the former one cannot read it.
        path.unlink(missing_ok=True)
        end = os.O_EXCL
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | end, FILE_MODE), mode)
    try:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fchmod(file.fileno(), FILE_MODE)
    except OSError:
        file.close()
        raise
    return file


def make_private_folder(folder: Path) -> None:
    """Make a folder of mode 0700, with the folders above it, or give the mode to an existing one."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(FOLDER_MODE)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically, even if the power fails."""
    part = path.with_name(path.name + PART)
    with open_private(part, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
    force_to_disk(path.parent)


def force_to_disk(folder: Path) -> None:
    """Force the names of a folder's files to disk, of new and of deleted ones."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
