"""Lakes that are set back to former states: their files never change, so a state is a list of files."""

import os
import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

CATALOG: Final = "catalog.db"


@dataclass(frozen=True)
class LakeState:
    """Files of a lake and rows of its catalog at one moment; of the file ``torn`` half is there.

    A file is its path within the lake, as text: a run has hundreds of moments, each with all files.
    """

    files: frozenset[str]
    catalog: str
    torn: str | None = None


@dataclass(frozen=True)
class KeptLake:
    """A local lake with a SQLite catalog, whose states are kept in a folder on the same disk."""

    folder: Path
    pool: Path
    _known: set[str] = field(default_factory=set)
    _torn: set[str] = field(default_factory=set)
    """Files of the present state of which half is there."""

    def keep(self, torn: Path | None = None) -> LakeState:
        """Return the present state of the lake.

        Args:
            torn: a file of the lake that has just been written, of which the state has half.
        """
        files = frozenset(_files_below(self.folder))
        for file in files - self._known:
            _link(self.folder / file, self.pool / file)
        self._known.update(files)
        with sqlite3.connect(self.folder / CATALOG, timeout=60) as catalog:
            rows = "\n".join(catalog.iterdump())
        return LakeState(files, rows, str(torn.relative_to(self.folder)) if torn is not None else None)

    def restore(self, state: LakeState) -> None:
        """Set the lake back, in place: Java's part of this process has its catalog open."""
        present = _files_below(self.folder)
        for gone in present & (self._torn | present - state.files):
            (self.folder / gone).unlink()
        present -= self._torn
        self._torn.clear()
        for missing in state.files - present:
            _link(self.pool / missing, self.folder / missing)
        if state.torn is not None:
            whole = (self.pool / state.torn).read_bytes()
            (self.folder / state.torn).unlink()
            (self.folder / state.torn).write_bytes(whole[: len(whole) // 2])
            self._torn.add(state.torn)
        self._restore_catalog(state.catalog)

    def add_kept_files(self, age_s: float) -> None:
        """Put all files of all kept states into the lake, where they are missing, and let all of it age."""
        for missing in self._known - _files_below(self.folder):
            _link(self.pool / missing, self.folder / missing)
        moment = time.time() - age_s
        for file in _files_below(self.folder):
            os.utime(self.folder / file, (moment, moment))

    def _restore_catalog(self, rows: str) -> None:
        with sqlite3.connect(":memory:") as kept, sqlite3.connect(self.folder / CATALOG, timeout=60) as now:
            kept.executescript(rows)
            kept.backup(now)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    os.link(source, target)


def _files_below(folder: Path) -> set[str]:
    begun = len(f"{folder}/")
    return {
        f"{place}/{name}"[begun:]
        for place, _, names in os.walk(folder)
        for name in names
        if not name.startswith(CATALOG)
    }
