"""The engine that the capture is compared with."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from benchmarks.capture import dropping_properties

UNREACHABLE: Final = 1
"""A port on which no server listens."""


@pytest.mark.integration
@pytest.mark.usefixtures("capturing")
def test_an_engine_that_ends_before_it_has_all_changes_stops_the_benchmark(tmp_path: Path) -> None:
    """Its library logs that the server is unreachable, and returns: the shorter run would count."""
    properties = json.dumps(dropping_properties(UNREACHABLE, tmp_path / "offsets"))
    command = [sys.executable, "-m", "benchmarks.capture", "--rows", "10", "--drop", properties]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ResultDiffers: all changes have arrived: expected True, found False" in done.stderr
