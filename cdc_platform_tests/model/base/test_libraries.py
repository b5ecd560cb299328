"""Optional libraries that are missing, or whose loading is interrupted."""

from pathlib import Path

import pytest

from cdc_platform.errors import LibraryMissing
from cdc_platform.model.base.libraries import optional_library

INTERRUPTED = """
try:
    raise KeyboardInterrupt
except KeyboardInterrupt as interruption:
    raise ImportError("initialization failed") from interruption
"""


def test_a_missing_library_is_named_with_its_command() -> None:
    """The error says which extra installs it."""
    with pytest.raises(LibraryMissing, match=r"`no_such_library` .*pip install 'cdc_platform\[duckdb\]'"):
        optional_library("no_such_library", "duckdb")


def test_ctrl_c_while_a_library_loads_stops_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiled module reports the interruption as its own failure; the library is not missing."""
    (tmp_path / "interrupted_library.py").write_text(INTERRUPTED)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        optional_library("interrupted_library", "duckdb")
