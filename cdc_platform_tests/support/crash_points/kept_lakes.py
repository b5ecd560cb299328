"""Lakes that are set back to former states: each version of a file is kept by its inode."""

import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

CATALOG: Final = "catalog.db"

KeptFile = tuple[str, int]
"""Path within the lake, as text since a run has hundreds of moments, and inode."""


@dataclass(frozen=True)
class LakeState:
    """Files of a lake and rows of its catalog at one moment; of the file ``torn`` half is there."""

    files: frozenset[KeptFile]
    catalog: str
    torn: str | None = None


@dataclass(frozen=True)
class KeptLake:
    """A local lake with a SQLite catalog, whose states are kept in a folder on the same disk.

    A file may be replaced by another one of its name, and is never changed in place.
    """

    folder: Path
    pool: Path
    _known: set[KeptFile] = field(default_factory=set)

    def keep(self, torn: Path | None = None) -> LakeState:
        """Return the present state of the lake.

        Args:
            torn: a file of the lake that has just been written, of which the state has half.
        """
        files = frozenset(_files_below(self.folder))
        for path, inode in files - self._known:
            _link(self.folder / path, self._kept(inode))
        self._known.update(files)
        with sqlite3.connect(self.folder / CATALOG, timeout=60) as catalog:
            rows = "\n".join(catalog.iterdump())
        return LakeState(files, rows, str(torn.relative_to(self.folder)) if torn is not None else None)

    def restore(self, state: LakeState) -> None:
        """Set the lake back, in place: Java's part of this process has its catalog open."""
        files = frozenset(_files_below(self.folder))
        for path, _ in files - state.files:
            (self.folder / path).unlink()
        for path, inode in state.files - files:
            _link(self._kept(inode), self.folder / path)
        if state.torn is not None:
            torn = self.folder / state.torn
            content = torn.read_bytes()
            torn.unlink()
            torn.write_bytes(content[: len(content) // 2])
        self._restore_catalog(state.catalog)

    def add_kept_files(self, age_s: float) -> None:
        """Put all files of all kept states into the lake, where they are missing, and let all of it age."""
        files = {path for path, _ in _files_below(self.folder)}
        for path, inode in self._known:
            if path not in files:
                _link(self._kept(inode), self.folder / path)
        moment = time.time() - age_s
        for path, _ in _files_below(self.folder):
            os.utime(self.folder / path, (moment, moment))

    def _kept(self, inode: int) -> Path:
        return self.pool / str(inode)

    def _restore_catalog(self, rows: str) -> None:
        with sqlite3.connect(":memory:") as kept, sqlite3.connect(self.folder / CATALOG, timeout=60) as now:
            kept.executescript(rows)
            kept.backup(now)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    os.link(source, target)


def _files_below(folder: Path) -> Iterator[KeptFile]:
    begun, folders = len(f"{folder}/"), [str(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not entry.name.startswith(CATALOG):
                    yield entry.path[begun:], entry.inode()
