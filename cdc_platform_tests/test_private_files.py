"""Files with rows and secrets are readable by the user alone, even if they replace others."""

import re
import stat
from pathlib import Path
from typing import Literal

import pytest

import cdc_platform
from cdc_platform.private_files import make_private_folder, open_private


def mode_of(path: Path) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("mode", "content"), [("wb", b"new"), ("ab", b"oldnew")])
def test_a_file_that_is_there_becomes_private(
    tmp_path: Path, mode: Literal["wb", "ab"], content: bytes
) -> None:
    """Its former mode, by which others could read it, is gone, after a replacement or an append."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with open_private(path, mode) as file:
        file.write(b"new")
    assert (mode_of(path), path.read_bytes()) == (0o600, content)


def test_who_reads_the_former_file_reads_nothing_new(tmp_path: Path) -> None:
    """A file that is replaced is another one."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        with open_private(path, "wb") as file:
            file.write(b"secret")
        assert reader.read() == b"old"


def test_a_device_keeps_its_mode() -> None:
    """A log that goes nowhere leaves the machine as it is."""
    before = mode_of(Path("/dev/null"))
    with open_private(Path("/dev/null"), "ab") as file:
        file.write(b"gone")
    assert before == mode_of(Path("/dev/null"))


def test_a_folder_that_is_there_becomes_private(tmp_path: Path) -> None:
    """It is made with the folders above it, or gets the mode."""
    folder = tmp_path / "a" / "b"
    make_private_folder(folder)
    assert mode_of(folder) == 0o700
    folder.chmod(0o755)
    make_private_folder(folder)
    assert mode_of(folder) == 0o700


def test_no_other_module_opens_private_files_itself() -> None:
    """A mode of a new file alone leaves one that is there as it is: a single module deals with both."""
    package = Path(cdc_platform.__file__).parent
    pattern = re.compile(r"O_CREAT|0o[67]00")
    names = {path.name for path in package.rglob("*.py") if pattern.search(path.read_text(encoding="utf-8"))}
    assert names == {"private_files.py"}
