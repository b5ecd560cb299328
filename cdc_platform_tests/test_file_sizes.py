"""Sizes of files and functions, and names that no file holds."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cdc_platform_tests.repository_files import PACKAGE, ROOT, statements, text_files

CODE: Final = (PACKAGE, f"{PACKAGE}_tests", "benchmarks", "docs")
MACHINE_PATH: Final = re.compile(r"(?<![\w.$}/:-])/(?:root|home|Users|work|mnt|private)/\w")
LINES_PER_FILE: Final = 400
LINES_PER_PRODUCT_FILE: Final = 300
DRAWN_TWICE: Final = f"{PACKAGE}/errors.py"
"""The one tree of errors, which its docstring also draws."""
LINES_PER_FUNCTION: Final = 60
BYTES_PER_FILE: Final = 200_000
"""Every clone has each file for good, so packages, logs and lakes stay out; the largest picture has less."""


def code_files() -> list[Path]:
    """Return all Python files of the project."""
    return sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py"))


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function and method of a file, nested ones too."""
    return (node for node in statements(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def limit_of(path: Path) -> int:
    """Return the maximum number of lines that a file may have."""
    is_product = path.is_relative_to(ROOT / PACKAGE) and path != ROOT / DRAWN_TWICE
    return LINES_PER_PRODUCT_FILE if is_product else LINES_PER_FILE


def test_files_fit_a_reader() -> None:
    """A file beyond the limit holds a second noun."""
    too_long = [
        f"{path.relative_to(ROOT)} has {lines} lines, limit {limit_of(path)}"
        for path in code_files()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > limit_of(path)
    ]
    assert not too_long, "\n".join(too_long)


def test_functions_fit_a_screen() -> None:
    """A function beyond the limit holds a second verb."""
    too_long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {lines} lines, limit {LINES_PER_FUNCTION}"
        for path in code_files()
        for node in functions_of(path)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > LINES_PER_FUNCTION
    ]
    assert not too_long, "\n".join(too_long)


def test_no_large_file_is_part_of_the_repository() -> None:
    """A file that somebody has left in the folder is not committed with the others."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    sizes = {path.relative_to(ROOT).as_posix(): path.stat().st_size for path in paths if path.is_file()}
    assert {name: size for name, size in sizes.items() if size > BYTES_PER_FILE} == {}


def test_no_file_names_a_machine() -> None:
    """Nothing depends on the home or work folder of the machine it was written on."""
    lines = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not lines, "\n".join(lines)
