"""The demo's home: what is written there, and when a new lake begins."""

import stat
from pathlib import Path

import pytest
import yaml

from cdc_platform.components.loading import load_settings
from cdc_platform.demo import home as home_module
from cdc_platform.demo.bank import BankSettings
from cdc_platform.demo.home import COMPONENT, REMOTE_VARIABLE, DemoHome, find_start, open_home, prepare_home
from cdc_platform.errors import SettingError
from cdc_platform.model.base.timestamps import from_rfc3339, to_rfc3339
from cdc_platform_tests.yaml_files import TYPE, change_stream_of

BANK = BankSettings("127.0.0.1:9010")
MINUTE = 60_000_000


class Stream:
    """A change stream that exists since some moment."""

    def __init__(self, created_micros: int) -> None:
        self.created_micros = created_micros

    def may_start_at(self, _bank: BankSettings, micros: int) -> bool:
        """Return whether the stream existed then."""
        return micros >= self.created_micros


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """The stream of the bank that answers; it was made a minute ago."""
    stream = Stream(home_module.time.time_ns() // 1000 - MINUTE)  # type: ignore[attr-defined]  # the module's own clock
    monkeypatch.setattr(home_module, "_may_start_at", stream.may_start_at)
    return stream


def start_of(home: DemoHome) -> int:
    """Return where the home's pipeline begins."""
    document = yaml.safe_load(home.defs.read_text())
    return from_rfc3339(document["attributes"]["source"]["start_timestamp"])


def test_the_start_is_the_beginning_of_the_stream(stream: Stream) -> None:
    """The first moment that can be read is found to the microsecond."""
    assert find_start(BANK) == stream.created_micros


@pytest.mark.usefixtures("stream")
def test_the_pipeline_of_the_home_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home's YAML file is a pipeline like any other; its Spark comes from the environment."""
    with open_home(tmp_path) as home:
        assert not prepare_home(home, BANK)
    monkeypatch.delenv(REMOTE_VARIABLE, raising=False)
    settings = load_settings(home.defs)
    assert (settings.name, change_stream_of(settings).emulator_host) == ("bank", BANK.host)
    assert (settings.lake.path, settings.spark.remote) == (str(home.lake), None)
    monkeypatch.setenv(REMOTE_VARIABLE, "sc://127.0.0.1:1")
    assert load_settings(home.defs).spark.remote == "sc://127.0.0.1:1"
    assert COMPONENT == TYPE


@pytest.mark.usefixtures("stream")
def test_the_home_is_its_owners_alone(tmp_path: Path) -> None:
    """No other user of the machine reads the lake or a log, also of a home that an older version made."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    with open_home(folder) as home:
        prepare_home(home, BANK)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")} == {0o600, 0o700}


def test_the_same_bank_goes_on(tmp_path: Path, stream: Stream) -> None:
    """Started again with its bank still there, the demo keeps its lake and its start."""
    with open_home(tmp_path) as home:
        prepare_home(home, BANK)
        home.lake.mkdir()
        assert prepare_home(home, BankSettings("127.0.0.1:9999"))
    assert home.lake.exists()
    assert start_of(home) == stream.created_micros
    assert change_stream_of(load_settings(home.defs)).emulator_host == "127.0.0.1:9999"


def test_another_bank_begins_a_lake(tmp_path: Path, stream: Stream) -> None:
    """When the emulator has forgotten the bank, the old lake is put aside and a new one begins."""
    with open_home(tmp_path) as home:
        prepare_home(home, BANK)
        home.lake.mkdir()
        stream.created_micros += MINUTE // 2
        assert not prepare_home(home, BANK)
    assert not home.lake.exists()
    assert len(list(tmp_path.glob("lake-before-*"))) == 1
    assert len(list(tmp_path.glob("dagster-before-*"))) == 1
    assert to_rfc3339(start_of(home)) == to_rfc3339(stream.created_micros)


def test_a_home_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """A file is no folder: the option is named."""
    (tmp_path / "file").touch()
    with pytest.raises(SettingError, match="`--home` names a place"), open_home(tmp_path / "file"):
        pass


def test_a_home_has_one_demo_at_a_time(tmp_path: Path) -> None:
    """A second demo of the same home is refused while the first one runs."""
    with open_home(tmp_path), pytest.raises(SettingError, match="in use"), open_home(tmp_path):
        pass
    with open_home(tmp_path):
        pass
