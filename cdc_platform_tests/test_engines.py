"""Trino and Flink read every cut, nightly: their jars are a gigabyte, and Trino needs its own JDK."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

JAVA_HOME: Final = "TRINO_JAVA_HOME"
WITHIN_S: Final = 3600.0


@pytest.mark.integration
@pytest.mark.skipif(JAVA_HOME not in os.environ, reason=f"{JAVA_HOME} names no JDK 25: a nightly run")
def test_trino_and_flink_read_every_cut(tmp_path: Path) -> None:
    """Both formats, deletion vectors and a tag: each query answers as `open_tables` does."""
    assert shutil.which("mvn") is not None, "Maven is not installed"
    command = [sys.executable, "-m", "benchmarks.engines", "--work", str(tmp_path)]
    # Its errors, and the seconds of each step, go to those of the test, which are shown if it fails.
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=WITHIN_S, check=False)
    assert run.returncode == 0, run.stdout
    asked = [line.split()[:4] for line in run.stdout.splitlines() if "equal answers" in line]
    assert [
        [name, "format", "version", f"{version}:"] for version in (3, 2) for name in ("flink", "trino")
    ] == asked
