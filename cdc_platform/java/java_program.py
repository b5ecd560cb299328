"""Search for the Java that Spark needs."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from cdc_platform.errors import JavaMissing

OLDEST_JAVA: Final = 17

ADVICE: Final = (
    f"Spark 4.1 needs Java {OLDEST_JAVA} or newer: install a JRE (Debian and Ubuntu: "
    f"`apt-get install openjdk-{OLDEST_JAVA}-jre-headless`, macOS: `brew install openjdk@{OLDEST_JAVA}`) "
    "or set JAVA_HOME to one, or point the setting `spark.remote` at a Spark Connect server."
)


def check_java() -> int:
    """Return the major version of the Java for Spark.

    Raises:
        JavaMissing: Java is missing or too old.
    """
    program = find_java()
    if program is None:
        home = os.environ.get("JAVA_HOME")
        place = f"in JAVA_HOME, which is {home} (no file {_of_home(home)})" if home else "on the PATH"
        raise JavaMissing(f"No Java was found {place}. {ADVICE}")
    version = _major_version(program)
    if version < OLDEST_JAVA:
        raise JavaMissing(f"Java {version} is too old: {program}. {ADVICE}")
    return version


def find_java() -> Path | None:
    """Return the Java program that Spark's launcher runs; None without one."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return _of_home(home) if _of_home(home).exists() else None
    program = shutil.which("java")
    return Path(program) if program is not None else None


def _of_home(home: str) -> Path:
    return Path(home) / "bin" / "java"


def _major_version(program: Path) -> int:
    try:
        command = [str(program), "-version"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603  the user's own Java
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissing(f"Java does not run: {program} ({error}). {ADVICE}") from error
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if match is None:
        raise JavaMissing(f"Java does not report a version: {program}. {ADVICE}")
    return int(match.group(1))
