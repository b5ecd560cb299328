"""The table of hazards names tests that are there."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent
TABLE: Final = TESTS.parent / "docs" / "hazards.md"
ROW: Final = re.compile(
    r"\| (?P<number>\d+) \| (?P<hazard>[^|]+) \| (?P<answer>[^|]+) \| (?P<shown>[^|]+) \|"
)
NAMED: Final = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<test>test_\w+)`")

ROWS: Final = {int(row["number"]): row for row in ROW.finditer(TABLE.read_text(encoding="utf-8"))}


def named_in(path: Path) -> set[str]:
    """Return the names of the tests in a file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_every_hazard_has_a_row() -> None:
    """The table leaves no number out."""
    assert list(range(1, 21)) == sorted(ROWS)


@pytest.mark.parametrize("number", sorted(ROWS))
def test_the_named_in_a_hazard_are_there(number: int) -> None:
    """Each hazard names at least one test, and each test that it names exists."""
    named = NAMED.findall(ROWS[number]["shown"])
    assert named
    assert len(named) == ROWS[number]["shown"].count("::")
    assert [f"{file}::{test}" for file, test in named if test not in named_in(TESTS / file)] == []
