"""Readers need neither Dagster, Spark nor a client of the source, which the platform itself does."""

import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Final

from cdc_platform_tests.docs.code_blocks import ROOT
from cdc_platform_tests.support.watched_lakes import SECOND, WatchedLake
from cdc_platform_tests.yaml_files import write_defs

START: Final = 1_800_000_000_000_000
HEAVY: Final = (
    *("dagster", "pyspark", "py4j", "google.cloud", "grpc"),
    *("fastavro", "jinja2", "numpy", "pandas", "starlette", "yaml"),
)
"""Libraries that the recipe of the page leaves out, by the beginning of their names."""
READER: Final = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith({heavy}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.read import open_tables

assert "duckdb" not in sys.modules, "nobody has asked for it yet"
cut = open_tables(LakeSettings(path={path}), "bank").at()
print(cut.arrow("accounts").num_rows)
print(len(cut.polars("accounts")))
print(cut.duckdb().sql("SELECT count(*) FROM accounts").fetchone()[0])
"""


def test_reading_needs_none_of_the_heavy_libraries(tmp_path: Path) -> None:
    """Without them a program reads a cut by Arrow, Polars and DuckDB, from the settings of the lake."""
    lake = WatchedLake.begin(write_defs(tmp_path), START)
    lake.run_cycle(START + SECOND, {"accounts": 2})
    code = READER.format(heavy=HEAVY, path=repr(str(tmp_path / "lake")))
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stdout.split()) == (0, ["2"] * 3), answer.stderr


def test_the_page_installs_what_the_package_asks_for() -> None:
    """The libraries of a reader have the versions that the package itself requires."""
    package = ConfigParser()
    package.read(ROOT / "setup.cfg", encoding="utf-8")
    texts = (package["options"]["install_requires"], package["options.extras_require"]["duckdb"])
    required = {line for text in texts for line in text.splitlines()}
    recipe = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8").partition("--no-deps .")[0]
    shown = re.findall(r"'([^']+)'", recipe.rpartition("```bash")[2])
    assert len(shown) == 7
    assert set(shown) <= required
