"""The demo's home folder: the pipeline's YAML file, the lake, Dagster's instance, logs."""

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from cdc_platform.errors import SettingError
from cdc_platform.private_files import make_private_folder

REMOTE_VARIABLE: Final = "CDC_PLATFORM_SPARK_REMOTE"
"""Environment variable that passes the address of the demo's Spark Connect server to the pipeline's runs."""

ACCOUNTS: Final = "accounts"
COMPONENT: Final = "cdc_platform.components.spanner.SpannerPipeline"

DAGSTER_YAML: Final = """\
telemetry: {enabled: false}
nux: {enabled: false}
# Runs start at once: the queue is polled only every few seconds.
run_coordinator: {module: dagster.core.run_coordinator, class: DefaultRunCoordinator}
run_monitoring: {enabled: true, start_timeout_seconds: 120, poll_interval_seconds: 30}
retention:
  sensor: {purge_after_days: {skipped: 1, failure: 7, success: 7}}
"""

WORKSPACE_YAML: Final = """\
load_from:
  - python_module: {module_name: cdc_platform.definitions, location_name: cdc_platform}
"""


class DemoHome:
    """Folder of a demo; nothing is written outside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.defs = folder / "defs.yaml"
        """The pipeline's YAML file, the argument of all commands."""
        self.lake = folder / "lake"
        self.bank = folder / "bank.json"
        """Settings from which the simulator resumes the bank's history."""
        self.names = folder / "names.json"
        """The names to connect with to the running simulator."""
        self.dagster = folder / "dagster"
        """Dagster's instance folder."""
        self.workspace = self.dagster / "workspace.yaml"
        self.logs = folder / "logs"
        """Folder of the child processes' logs."""


@contextmanager
def open_home(folder: Path) -> Iterator[DemoHome]:
    """Yield the home folder, created if missing, for one demo at a time and readable by its owner only.

    All files that this process and its children create in the meantime are private to the owner, too.

    Raises:
        SettingError: another demo is using the folder, or it cannot be created.
    """
    home = DemoHome(folder)
    before = os.umask(0o077)
    try:
        yield from _lock(home)
    finally:
        os.umask(before)


def _lock(home: DemoHome) -> Iterator[DemoHome]:
    folder = home.folder
    try:
        make_private_folder(folder)
        home.logs.mkdir(exist_ok=True)
    except OSError as error:
        raise SettingError("--home", f"names a folder that cannot be created: {error}") from error
    with (folder / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SettingError("--home", f"is in use by another demo: {folder}") from error
        yield home


def prepare_home(home: DemoHome, bank: Mapping[str, str]) -> bool:
    """Write the home's files for a bank, and return whether the existing lake continues.

    It continues if the bank's change stream is the one that the lake began with. Otherwise the history of the
    old bank has been removed, the bank is a new one, and the old lake and Dagster folder are renamed.
    """
    goes_on = _read_start(home) == bank["start_timestamp"]
    if not goes_on:
        _put_aside(home)
    home.dagster.mkdir(parents=True, exist_ok=True)
    (home.dagster / "dagster.yaml").write_text(DAGSTER_YAML, encoding="utf-8")
    home.workspace.write_text(WORKSPACE_YAML, encoding="utf-8")
    home.defs.write_text(_defs(bank), encoding="utf-8")
    return goes_on


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


def _defs(bank: Mapping[str, str]) -> str:
    attributes = {
        "name": "bank",
        "source": dict(bank),
        "lake": {"path": "lake"},
        "spark": {"remote": f"{{{{ env.{REMOTE_VARIABLE} }}}}"},
        "tables": [ACCOUNTS, "transfers"],
        "idle_interval_s": 0.5,
        "runs": {"follow_s": 300, "full_checks_every_s": 300, "owners": ["team:bank"]},
    }
    return yaml.safe_dump({"type": COMPONENT, "attributes": attributes}, sort_keys=False)
