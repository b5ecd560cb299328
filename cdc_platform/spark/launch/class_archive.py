"""Java's class archive for Spark, with which a session starts in about half the time.

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
from pathlib import Path
from typing import Final

import pyspark

from cdc_platform.spark.launch.java import find_java

CACHE_VARIABLE: Final = "XDG_CACHE_HOME"
UNUSED_S: Final = 30 * 24 * 3600.0
"""Time without a start after which an archive is removed; one takes about 200 MB."""

_MAGIC_BYTES: Final = 4
# An unsuitable archive does not deserve a line in the output of every start.
_QUIET: Final = "-Xlog:cds*=off"


def archive_options(class_path: str = "") -> str:
    """Return options for Spark's Java process: it maps the archive, or writes it at its end.

    They are empty without Java or a writable cache. ``class_path`` names the jars before Spark's own.
    """
    file = archive_file(class_path)
    if file is None:
        return ""
    if not is_complete(file):
        return f'"-XX:ArchiveClassesAtExit={file}" {_QUIET}'
    os.utime(file)
    return f'"-XX:SharedArchiveFile={file}" -Xshare:auto {_QUIET}'


def archive_file(class_path: str = "") -> Path | None:
    """Return the path of the archive for this Java and these jars; None if there can be none."""
    java = find_java()
    if java is None:
        return None
    try:
        folder = cache_folder()
        program = java.resolve()
        is_from = f"{program} {program.stat().st_mtime_ns} {_jars(class_path)}"
        folder.mkdir(parents=True, exist_ok=True)
        remove_unused(folder)
    except (OSError, RuntimeError):
        return None
    name = hashlib.sha256(f"{is_from} {pyspark.__version__}".encode()).hexdigest()[:16]
    return folder / f"spark-{name}.jsa"


def _jars(class_path: str) -> str:
    """Return all jars in the form that Java compares with an archive: path, time and size."""
    first = map(Path, class_path.split(os.pathsep) if class_path else ())
    files = (*first, *sorted(Path(pyspark.__file__).parent.glob("jars/*.jar")))
    facts = ((file, file.stat()) for file in files)
    return " ".join(f"{file} {status.st_mtime_ns} {status.st_size}" for file, status in facts)


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
    for file in folder.glob("spark-*.jsa"):
        if time.time() - file.stat().st_mtime > UNUSED_S:
            file.unlink(missing_ok=True)
