"""Java's class archives for Spark and the embedded engine, which start in about half the time with them.

Half of the cost of a small run is Java's parsing and verification of ten thousand classes, the same ones each
time. With class-data sharing (JEP 350) a process writes them to a file when it ends, and the next one maps
it. Java itself checks an archive: it ignores one from another Java or from other jars.

Java 17 and 18 write one only with `-XX:ArchiveClassesAtExit`, and never replace one. From 19 on,
`-XX:+AutoCreateSharedArchive` (JDK-8261455) does both: once 19 is the minimum, `is_complete` can be removed,
and names need not depend on the jars.
"""

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

CACHE_VARIABLE: Final = "XDG_CACHE_HOME"
UNUSED_S: Final = 30 * 24 * 3600.0
"""Time without a start after which an archive is removed; one takes about 200 MB."""

_MAGIC_BYTES: Final = 4
# An unsuitable archive does not deserve a line in the output of every start.
_QUIET: Final = "-Xlog:cds*=off"


def archive_options(file: Path | None) -> list[str]:
    """Return options for a Java process: it maps the archive, or writes it at its end."""
    if file is None:
        return []
    if not is_complete(file):
        return [f"-XX:ArchiveClassesAtExit={file}", _QUIET]
    os.utime(file)
    return [f"-XX:SharedArchiveFile={file}", "-Xshare:auto", _QUIET]


def archive_file(program: str, java: Path | None, jars: Sequence[Path]) -> Path | None:
    """Return the path of a program's archive for this Java and these jars.

    It is None without Java or a writable cache. ``java`` is a file that an upgrade of Java replaces.
    """
    if java is None:
        return None
    try:
        folder = cache_folder()
        files = [java.resolve(), *jars]
        # Java itself compares paths, times and sizes of jars with an archive.
        facts = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files]
        folder.mkdir(parents=True, exist_ok=True)
        remove_unused(folder)
    except (OSError, RuntimeError):
        return None
    return folder / f"{program}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.jsa"


def cache_folder() -> Path:
    """Return the platform's folder in the user's cache, which may not exist yet."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache").absolute() / "cdc_platform"


def is_complete(file: Path) -> bool:
    """Return whether an archive is complete: Java writes the header last, with its signature first."""
    try:
        with file.open("rb") as archive:
            return any(archive.read(_MAGIC_BYTES))
    except OSError:
        return False


def remove_unused(folder: Path) -> None:
    """Remove archives that no start has used for a month, such as those of an old Java or Spark."""
    for file in folder.glob("*.jsa"):
        if time.time() - file.stat().st_mtime > UNUSED_S:
            file.unlink(missing_ok=True)
