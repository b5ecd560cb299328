"""The tables of hazards name tests that are there."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent
TABLES: Final = {
    "hazards.md": 20,
    "partition-modes.md": 13,
    "datastream-hazards.md": 27,
    "debezium-hazards.md": 26,
    "debezium-hazards-delivery.md": 20,
}
"""Pages of `docs`, and how many hazards their tables have."""
ROW: Final = re.compile(
    r"\| (?P<number>\d+) \| (?P<hazard>[^|]+) \| (?P<answer>[^|]+) \| (?P<shown>[^|]+) \|"
)
NAMED: Final = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<test>test_\w+)`")

ROWS: Final = {
    (page, int(row["number"])): row["shown"]
    for page in TABLES
    for row in ROW.finditer((TESTS.parent / "docs" / page).read_text(encoding="utf-8"))
}


@cache
def named_in(path: Path) -> frozenset[str]:
    """Return the names of the tests in a file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


def test_every_hazard_has_a_row() -> None:
    """The tables leave no number out."""
    expected = [(page, number) for page, hazards in TABLES.items() for number in range(1, hazards + 1)]
    assert expected == list(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_the_named_in_a_hazard_are_there(row: tuple[str, int]) -> None:
    """Each hazard names at least one test, and each test that it names exists."""
    named = NAMED.findall(ROWS[row])
    assert named
    assert len(named) == ROWS[row].count("::")
    assert [f"{file}::{test}" for file, test in named if test not in named_in(TESTS / file)] == []
