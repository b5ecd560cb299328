"""The code blocks of the pages, and which tests run those that are not checked by their language alone."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
)

CHECKED: Final = frozenset({"bash", "console", "json", "yaml"})
"""Languages of which every block is checked, unless it says that it is not run."""
SHOWN: Final = "text"
"""What a program printed, and drawings."""
BANK: Final = frozenset(
    {
        ("README.md", "python"),
        ("docs/reading.md", "python"),
        ("docs/past-cuts.md", "python"),
        ("docs/engines.md", "python"),
        ("docs/histories.md", "sql"),
    }
)
"""Pages and languages of the blocks that `test_read.py` runs on tables of a bank."""
POSTGRESQL: Final = frozenset({("docs/debezium-toast.md", "sql")})
"""Those that a PostgreSQL runs."""
SIMULATOR: Final = frozenset({("docs/simulator.md", "python"), ("docs/simulator-readers.md", "python")})
"""Those that run as separate programs."""

_BLOCK: Final = re.compile(
    r"^(?P<before>[^\n]*)\n\n?(?P<indent> *)```(?P<language>[^\n]*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_NOT_RUN: Final = re.compile(r"^ *\*Not run by a test: .+\*$")
_PARTS_NOT_RUN: Final = re.compile(r"^ *<!-- not run: (.+) -->$")
"""Commands of a block that no test runs, in backticks, each with the reason."""


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    Args:
        page: the page, from the root of the project.
        line: number of its first line, from 1.
        language: what stands after the first fence.
        text: its lines, without their common indentation.
        is_run: whether the line before it does not say otherwise.
        not_run: beginnings of its commands that are not run all the same, as the line before it says.
    """

    page: str
    line: int
    language: str
    text: str
    is_run: bool
    not_run: tuple[str, ...]

    @property
    def place(self) -> str:
        """Where it is, for the name of a test."""
        return f"{self.page}:{self.line}"

    @property
    def kind(self) -> tuple[str, str]:
        """Its page and language."""
        return self.page, self.language


def parts_not_run(line: str) -> tuple[str, ...]:
    """Return the beginnings of commands that a line before a block names."""
    match = _PARTS_NOT_RUN.match(line)
    return () if match is None else tuple(re.findall(r"`([^`]+)`:", match[1]))


def read_blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page."""
    text = page.read_text(encoding="utf-8")
    name = str(page.relative_to(ROOT))
    return [
        Block(
            name,
            text.count("\n", 0, block.start("language")) + 1,
            block["language"],
            textwrap.dedent(block["text"]),
            _NOT_RUN.match(block["before"]) is None,
            parts_not_run(block["before"]),
        )
        for block in _BLOCK.finditer(text)
    ]


BLOCKS: Final = tuple(block for page in PAGES for block in read_blocks(page))


def blocks_of(*languages: str) -> list[Block]:
    """Return the blocks of some languages that are run."""
    return [block for block in BLOCKS if block.is_run and block.language in languages]


def blocks_in(kinds: frozenset[tuple[str, str]]) -> list[Block]:
    """Return the blocks of some pages and languages that are run."""
    return [block for block in BLOCKS if block.is_run and block.kind in kinds]
