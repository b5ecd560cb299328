"""Finding the Java that Spark needs."""

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
    """Return the major version of the Java that Spark will run on.

    Raises:
        JavaMissing: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None or not Path(program).exists():
        place = f"in JAVA_HOME, which is {home} (no file {program})" if home else "on the PATH"
        raise JavaMissing(f"No Java was found {place}. {ADVICE}")
    version = _major_version(program)
    if version < OLDEST_JAVA:
        raise JavaMissing(f"Java {version} is too old: {program}. {ADVICE}")
    return version


def _major_version(program: str) -> int:
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603  the program is the user's own Java
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissing(f"Java does not run: {program} ({error}). {ADVICE}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if found is None:
        raise JavaMissing(f"Java tells no version: {program}. {ADVICE}")
    return int(found.group(1))
