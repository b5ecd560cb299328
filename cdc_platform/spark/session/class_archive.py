"""Spark's classes as an archive of Java's: a session that finds one starts in about half the time.

Half of what a small run costs is Java parsing and verifying ten thousand classes, the same ones each time.
With class-data sharing (JEP 350) a process writes them down when it ends, and the next one maps the file.
Java itself judges an archive: what was made by another Java, or from other jars, is not used.

Java 17 and 18 write one only with `-XX:ArchiveClassesAtExit`, and never one that is there again. From 19 on,
`-XX:+AutoCreateSharedArchive` (JDK-8261455) does both by itself: once 19 is the least, `is_complete` goes,
and names need not depend on the jars.
"""

import hashlib
import os
import time
from pathlib import Path
from typing import Final

import pyspark

from cdc_platform.spark.session.java import find_java

CACHE_VARIABLE: Final = "XDG_CACHE_HOME"
UNUSED_S: Final = 30 * 24 * 3600.0
"""After so long without a start an archive is removed; one takes about 200 MB."""

_MAGIC_BYTES: Final = 4
# An archive that does not fit is not worth a line of its own in the output of every start.
_QUIET: Final = "-Xlog:cds*=off"


def archive_options() -> str:
    """Return options of a Java that is to run Spark: it maps the archive, or writes it when it ends.

    They are empty where there is no Java, or no cache to write to.
    """
    file = archive_file()
    if file is None:
        return ""
    if not is_complete(file):
        return f'"-XX:ArchiveClassesAtExit={file}" {_QUIET}'
    os.utime(file)
    return f'"-XX:SharedArchiveFile={file}" -Xshare:auto {_QUIET}'


def archive_file() -> Path | None:
    """Return the place of the archive for this Java and this Spark; None where there can be none."""
    java = find_java()
    if java is None:
        return None
    try:
        folder = cache_folder()
        program = java.resolve()
        is_from = f"{program} {program.stat().st_mtime_ns} {_jars()}"
        folder.mkdir(parents=True, exist_ok=True)
        remove_unused(folder)
    except (OSError, RuntimeError):
        return None
    name = hashlib.sha256(f"{is_from} {pyspark.__version__}".encode()).hexdigest()[:16]
    return folder / f"spark-{name}.jsa"


def _jars() -> str:
    """Return Spark's jars as Java compares them with those of an archive: path, time and size."""
    facts = ((file, file.stat()) for file in sorted(Path(pyspark.__file__).parent.glob("jars/*.jar")))
    return " ".join(f"{file} {status.st_mtime_ns} {status.st_size}" for file, status in facts)


def cache_folder() -> Path:
    """Return the platform's folder in the user's cache; there may be none yet."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache").absolute() / "cdc_platform"


def is_complete(file: Path) -> bool:
    """Return whether an archive was written to its end: Java writes the header last, with its sign first."""
    try:
        with file.open("rb") as archive:
            return any(archive.read(_MAGIC_BYTES))
    except OSError:
        return False


def remove_unused(folder: Path) -> None:
    """Remove archives that no start has used for a month: those of a Java or a Spark that is gone."""
    for file in folder.glob("spark-*.jsa"):
        if time.time() - file.stat().st_mtime > UNUSED_S:
            file.unlink(missing_ok=True)
