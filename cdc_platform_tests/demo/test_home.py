"""The demo's home: what is written there, and when a new lake begins."""

import stat
from pathlib import Path

import pytest
import yaml

from cdc_platform.components.loading import load_settings
from cdc_platform.demo.home import COMPONENT, REMOTE_VARIABLE, DemoHome, open_home, prepare_home
from cdc_platform.errors import SettingError
from cdc_platform_tests.yaml_files import TYPE, change_stream_of

BANK = {
    "project": "simulator",
    "instance": "simulator",
    "database": "bank",
    "change_stream": "changes",
    "emulator_host": "127.0.0.1:9010",
    "dialect": "googlesql",
    "start_timestamp": "2026-01-31T08:00:00Z",
}
"""Names to connect with, as the simulator writes them."""


def start_of(home: DemoHome) -> str:
    """Return where the home's pipeline begins."""
    return str(yaml.safe_load(home.defs.read_text())["attributes"]["source"]["start_timestamp"])


def test_the_pipeline_of_the_home_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home's YAML file is a pipeline like any other; its Spark comes from the environment."""
    with open_home(tmp_path) as home:
        assert not prepare_home(home, BANK)
    monkeypatch.delenv(REMOTE_VARIABLE, raising=False)
    settings = load_settings(home.defs)
    assert (settings.name, change_stream_of(settings).emulator_host) == ("bank", BANK["emulator_host"])
    assert (settings.lake.path, settings.spark.remote) == (str(home.lake), None)
    monkeypatch.setenv(REMOTE_VARIABLE, "sc://127.0.0.1:1")
    assert load_settings(home.defs).spark.remote == "sc://127.0.0.1:1"
    assert COMPONENT == TYPE


def test_the_home_is_its_owners_alone(tmp_path: Path) -> None:
    """No other user of the machine reads the lake or a log, also of a home that an older version made."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    with open_home(folder) as home:
        prepare_home(home, BANK)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")} == {0o600, 0o700}


def test_the_same_bank_continues(tmp_path: Path) -> None:
    """Started again with its bank still there, the demo keeps its lake and its start."""
    with open_home(tmp_path) as home:
        prepare_home(home, BANK)
        home.lake.mkdir()
        assert prepare_home(home, {**BANK, "emulator_host": "127.0.0.1:9999"})
    assert home.lake.exists()
    assert start_of(home) == BANK["start_timestamp"]
    assert change_stream_of(load_settings(home.defs)).emulator_host == "127.0.0.1:9999"


def test_another_bank_begins_a_lake(tmp_path: Path) -> None:
    """When the bank's history was removed, the old lake is put aside and a new one begins."""
    other = {**BANK, "start_timestamp": "2026-01-31T08:00:01Z"}
    with open_home(tmp_path) as home:
        prepare_home(home, BANK)
        home.lake.mkdir()
        assert not prepare_home(home, other)
    assert not home.lake.exists()
    assert len(list(tmp_path.glob("lake-before-*"))) == 1
    assert len(list(tmp_path.glob("dagster-before-*"))) == 1
    assert start_of(home) == other["start_timestamp"]


def test_a_home_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """A file is not a folder: the option is named."""
    (tmp_path / "file").touch()
    with pytest.raises(SettingError, match="`--home` names a folder"), open_home(tmp_path / "file"):
        pass


def test_a_home_has_one_demo_at_a_time(tmp_path: Path) -> None:
    """A second demo of the same home is refused while the first one runs."""
    with open_home(tmp_path), pytest.raises(SettingError, match="in use"), open_home(tmp_path):
        pass
    with open_home(tmp_path):
        pass
