"""The wheel: what `pip install` puts on a user's machine."""

import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from shutil import copytree, ignore_patterns
from sysconfig import get_path
from typing import Final
from zipfile import ZipFile

import pytest

from cdc_platform.commands.error_texts import ERROR_PAGES

pytestmark = pytest.mark.integration

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = "cdc_platform"
NO_SOURCES: Final = ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "logs")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """The wheel that pip builds from a clean checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    # A build writes into the folder that it builds.
    sources = copytree(ROOT, folder / "sources", ignore=NO_SOURCES)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(sources)]
    built = subprocess.run(command, text=True, capture_output=True, timeout=600, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return ZipFile(path)


def test_the_wheel_holds_the_package_and_nothing_else(wheel: ZipFile) -> None:
    """It has all files of the package and the pages of errors, no tests, benchmarks or examples."""
    own = (path for path in (ROOT / PACKAGE).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    named = [name for name in wheel.namelist() if ".dist-info/" not in name and ".data/" not in name]
    assert sorted(path.relative_to(ROOT).as_posix() for path in own) == sorted(named)
    pages = {name for name in wheel.namelist() if ".data/" in name}
    installed = ERROR_PAGES[1].relative_to(get_path("data"))
    assert {f"data/{installed}/{page.name}" for page in ERROR_PAGES[0].iterdir()} == {
        name.partition(".data/")[2] for name in pages
    }
    assert {"LICENSE", "METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt"} == {
        Path(name).name for name in wheel.namelist() if name not in named and name not in pages
    }


def test_the_wheel_installs_the_command_and_the_components(wheel: ZipFile) -> None:
    """A user gets the command `cdc-platform`, and `dg` finds the components of all three sources."""
    (place,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    parser = ConfigParser()
    parser.read_string(wheel.read(place).decode())
    assert {
        "console_scripts": {"cdc-platform": f"{PACKAGE}.cli:main"},
        "dagster_dg_cli.registry_modules": {
            PACKAGE: f"{PACKAGE}.components.spanner",
            f"{PACKAGE}_datastream": f"{PACKAGE}.components.datastream",
            f"{PACKAGE}_debezium": f"{PACKAGE}.components.debezium",
        },
    } == {section: dict(parser[section]) for section in parser.sections()}
