"""Flink and Trino read every cut, in CI or where a JDK for Trino is named: their jars are 0.8 GB."""

import os
import shutil
import sys
from pathlib import Path
from typing import Final

import pytest

from benchmarks import engines

JAVA_HOME: Final = "TRINO_JAVA_HOME"
ENGINES: Final = ("flink", "trino") if JAVA_HOME in os.environ else ("flink",)


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.skipif(
    JAVA_HOME not in os.environ and os.environ.get("CI") != "true",
    reason=f"{JAVA_HOME} names no JDK 25, and the jars of the engines are 0.8 GB",
)
def test_engines_read_every_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both formats, deletion vectors and a tag: each query answers as `open_tables` does."""
    assert shutil.which("mvn") is not None, "Maven is not installed"
    monkeypatch.setattr(sys, "argv", ["engines", "--work", str(tmp_path)])
    # The seconds of each step go to the errors of the test, which are shown if it fails.
    engines.main()
    output = capsys.readouterr().out
    answers = [line.split()[:4] for line in output.splitlines() if "equal answers" in line]
    assert [
        [f"{name},", "format", "version", f"{version}:"] for name in ENGINES for version in (3, 2)
    ] == answers, output
