"""The files of the repository that people read or run."""

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
