"""The demo's home folder: the pipeline's YAML file, the lake, Dagster's instance, logs."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from cdc_platform.demo.bank import BankSettings
from cdc_platform.errors import SettingError, SourceError
from cdc_platform.model.base.timestamps import from_rfc3339, to_rfc3339
from cdc_platform.private_files import make_private_folder
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings

REMOTE_VARIABLE: Final = "CDC_PLATFORM_SPARK_REMOTE"
"""Environment variable by which the demo tells the pipeline's runs about its Spark Connect server."""

COMPONENT: Final = "cdc_platform.components.spanner.SpannerPipeline"

DAGSTER_YAML: Final = """\
telemetry: {enabled: false}
nux: {enabled: false}
# Runs start at once: the queue looks every few seconds only.
run_coordinator: {module: dagster.core.run_coordinator, class: DefaultRunCoordinator}
run_monitoring: {enabled: true, start_timeout_seconds: 120, poll_interval_seconds: 30}
retention:
  sensor: {purge_after_days: {skipped: 1, failure: 7, success: 7}}
"""

WORKSPACE_YAML: Final = """\
load_from:
  - python_module: {module_name: cdc_platform.definitions, location_name: cdc_platform}
"""

OLDEST_START_S: Final = 24 * 3600
"""A change stream of the bank keeps a day."""


@dataclass(frozen=True)
class DemoHome:
    """Folder of a demo; nothing is written outside it."""

    folder: Path

    @property
    def defs(self) -> Path:
        """The pipeline's YAML file, which all commands take."""
        return self.folder / "defs.yaml"

    @property
    def lake(self) -> Path:
        """The lake's folder."""
        return self.folder / "lake"

    @property
    def bank(self) -> Path:
        """Settings with which the simulator resumes the bank's history."""
        return self.folder / "bank.json"

    @property
    def names(self) -> Path:
        """The names to connect with to the simulator that runs now."""
        return self.folder / "names.json"

    @property
    def dagster(self) -> Path:
        """Dagster's instance folder."""
        return self.folder / "dagster"

    @property
    def workspace(self) -> Path:
        """Dagster's workspace file."""
        return self.dagster / "workspace.yaml"

    @property
    def logs(self) -> Path:
        """Folder of the child processes' logs."""
        return self.folder / "logs"


@contextmanager
def open_home(folder: Path) -> Iterator[DemoHome]:
    """Yield the home folder, made if need be, for one demo at a time, and for its owner alone.

    What this process and its children write meanwhile is the owner's, too.

    Raises:
        SettingError: another demo is using it, or no folder can be made there.
    """
    home = DemoHome(folder)
    before = os.umask(0o077)
    try:
        yield from _locked(home)
    finally:
        os.umask(before)


def _locked(home: DemoHome) -> Iterator[DemoHome]:
    folder = home.folder
    try:
        make_private_folder(folder)
        home.logs.mkdir(exist_ok=True)
    except OSError as error:
        raise SettingError("--home", f"names a place where no folder can be made: {error}") from error
    with (folder / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SettingError("--home", f"is in use by another demo: {folder}") from error
        yield home


def prepare_home(home: DemoHome, bank: BankSettings) -> bool:
    """Write the home's files for a bank that exists; return whether the lake of before goes on.

    It does when the bank's change stream existed already at the lake's start. Otherwise the bank is
    another one (an emulator keeps nothing), and what was made of the last one is put aside.
    """
    start = _read_start(home)
    goes_on = start is not None and _may_start_at(bank, from_rfc3339(start))
    if start is None or not goes_on:
        _put_aside(home)
        start = to_rfc3339(find_start(bank))
    home.dagster.mkdir(parents=True, exist_ok=True)
    (home.dagster / "dagster.yaml").write_text(DAGSTER_YAML, encoding="utf-8")
    home.workspace.write_text(WORKSPACE_YAML, encoding="utf-8")
    home.defs.write_text(_defs(bank, start), encoding="utf-8")
    return goes_on


def find_start(bank: BankSettings) -> int:
    """Return the first moment that the bank's change stream can be read from: it has the whole history."""
    valid = time.time_ns() // 1000
    invalid = valid - OLDEST_START_S * 1_000_000
    while valid - invalid > 1:
        middle = (valid + invalid) // 2
        if _may_start_at(bank, middle):
            valid = middle
        else:
            invalid = middle
    return valid


def _may_start_at(bank: BankSettings, micros: int) -> bool:
    settings = SpannerSettings(bank.project, bank.instance, bank.database, bank.change_stream)
    settings = replace(settings, emulator_host=bank.host, start_timestamp=to_rfc3339(micros))
    source = SpannerSource(settings)
    try:
        source.start_micros()
    except (SourceError, SettingError):
        return False
    else:
        return True
    finally:
        source.close()


def _read_start(home: DemoHome) -> str | None:
    if not home.defs.exists() or not home.lake.exists():
        return None
    document = yaml.safe_load(home.defs.read_text(encoding="utf-8"))
    return str(document["attributes"]["source"]["start_timestamp"])


def _put_aside(home: DemoHome) -> None:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    for folder in (home.lake, home.dagster):
        if folder.exists():
            folder.rename(folder.with_name(f"{folder.name}-before-{stamp}"))


def _defs(bank: BankSettings, start: str) -> str:
    attributes = {
        "name": "bank",
        "source": {
            "project": bank.project,
            "instance": bank.instance,
            "database": bank.database,
            "change_stream": bank.change_stream,
            "emulator_host": bank.host,
            "start_timestamp": start,
        },
        "lake": {"path": "lake"},
        "spark": {"remote": f"{{{{ env.{REMOTE_VARIABLE} }}}}"},
        "tables": ["accounts", "transfers"],
        "idle_interval_s": 0.5,
        "runs": {"follow_s": 300, "full_checks_every_s": 300, "owners": ["team:bank"]},
    }
    return yaml.safe_dump({"type": COMPONENT, "attributes": attributes}, sort_keys=False)
