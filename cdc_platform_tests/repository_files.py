"""The files of the repository that people read or run."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = "cdc_platform"
TEXT_SUFFIXES: Final = frozenset({".py", ".md", ".toml", ".cfg", ".yaml", ".yml", ".properties", ""})


def text_files() -> list[Path]:
    """Return the files of the project that people read or run."""
    folders = [ROOT / name for name in (PACKAGE, f"{PACKAGE}_tests", "benchmarks", "docs", "examples", ".ci")]
    below = [path for folder in folders for path in folder.rglob("*")]
    paths = [path for path in (*ROOT.iterdir(), *below) if path.suffix in TEXT_SUFFIXES and path.is_file()]
    return sorted(path for path in paths if path.name != ".git" and "__pycache__" not in path.parts)


def statements(path: Path) -> Iterator[ast.stmt]:
    """Yield all statements of a file, nested ones too; its expressions, most of the tree, stay unvisited."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += reversed(getattr(node, name, ()))
        if isinstance(node, ast.stmt):
            yield node


@cache
def import_nodes(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports of a file, inside functions too; a file is parsed once for all tests."""
    return [node for node in statements(path) if isinstance(node, ast.Import | ast.ImportFrom)]
