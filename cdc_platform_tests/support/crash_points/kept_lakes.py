"""Lakes that are set back to a kept state: their files never change, so a state is a list of files."""

import os
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

CATALOG: str = "catalog.db"


@dataclass(frozen=True)
class KeptLake:
    """A state of a lake with a SQLite catalog, in a folder beside it on the same disk."""

    folder: Path
    kept: Path

    @classmethod
    def keep(cls, folder: Path, kept: Path) -> "KeptLake":
        """Keep the present state of a lake."""
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept, copy_function=os.link, ignore=shutil.ignore_patterns(f"{CATALOG}*"))
        _copy_database(folder / CATALOG, kept / CATALOG)
        return cls(folder, kept)

    def restore(self) -> None:
        """Set the lake back, in place: other processes have its catalog open."""
        present, wanted = _files_below(self.folder), _files_below(self.kept)
        for gone in present - wanted:
            (self.folder / gone).unlink()
        for missing in wanted - present:
            (self.folder / missing).parent.mkdir(parents=True, exist_ok=True)
            os.link(self.kept / missing, self.folder / missing)
        _copy_database(self.kept / CATALOG, self.folder / CATALOG)


def _files_below(folder: Path) -> set[Path]:
    return {
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(CATALOG)
    }


def _copy_database(source: Path, target: Path) -> None:
    with sqlite3.connect(source) as from_file, sqlite3.connect(target, timeout=60) as to_file:
        from_file.backup(to_file)
