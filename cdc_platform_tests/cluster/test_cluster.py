"""A pipeline at work: a Spark cluster, a catalog in PostgreSQL, the lake in an object store."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from cdc_platform.cli import main
from cdc_platform.components.loading import load_settings
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import SimulatorSettings
from cdc_platform_tests.cluster.services import Services, write_defs
from cdc_platform_tests.cluster.spark_cluster import SparkCluster, spark_cluster
from cdc_platform_tests.programs import COMMAND_LINE, ENVIRONMENT, start
from cdc_platform_tests.spark_fixtures import require_java
from cdc_platform_tests.support.pipelines import CHECKS

pytestmark = [pytest.mark.integration, pytest.mark.long]

WITHIN_S: Final = 600.0
"""A busy machine is slow, not wrong."""

ACCOUNTS: Final = 30
BANK: Final = SimulatorSettings(
    seed=11, rate=10, accounts=ACCOUNTS, partitions=4, partition_life_s=600, preloaded_transfers=50
)
OPENING_BALANCE: Final = 1000


@dataclass(frozen=True)
class Driver:
    """A machine that drives a cluster: a folder that is its home, and nothing else that lasts."""

    folder: Path
    variables: Mapping[str, str]

    def run(self, command: str, *options: str | Path) -> str:
        """Run a command that must succeed, and return what it said; no command line shows a secret."""
        log = self.folder / f"{command}.log"
        environment = {**ENVIRONMENT, **self.variables}
        with start(
            log, COMMAND_LINE, command, self.folder / "defs.yaml", *options, environment=environment
        ) as program:
            program.wait_for("Spark is ready", WITHIN_S)
            assert set() == {name for name, value in self.variables.items() if value in command_lines()}
            code = program.ends_with(WITHIN_S)
        assert code == 0, program.output()
        return program.output()

    def status(self) -> str:
        """Return what the command says that needs no Spark."""
        answer = CliRunner(env=self.variables).invoke(main, ["status", str(self.folder / "defs.yaml")])
        assert answer.exit_code == 0, answer.output
        return answer.output

    def files(self) -> set[str]:
        """Return the names of all its files but those of Spark's event log."""
        paths = (path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file())
        return {str(path) for path in paths if path.parts[0] != "events"}


def command_lines() -> str:
    """Return the command lines of all processes of this machine, where the system provides them."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            continue  # it has ended meanwhile
    return "\n".join(lines)


def all_text(*folders: Path) -> str:
    """Return the contents of all files below folders that are not archives."""
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    text_files = (path for path in files if path.suffix not in {".jar", ".zip"})
    return "\n".join(path.read_bytes().decode(errors="replace") for path in text_files)


def test_a_pipeline_on_a_cluster(services: Services, tmp_path: Path) -> None:
    """The tables equal the source, on any driver; workers need nothing but what the driver sends."""
    require_java()
    with (
        Simulator(BANK) as simulator,
        spark_cluster(tmp_path / "cluster", services.cluster_secret) as cluster,
    ):
        cluster.wait_until_ready()
        first = make_driver(tmp_path / "first", services, cluster, simulator)
        # One worker is enough to read what two have written, and sooner there.
        second = make_driver(tmp_path / "second", services, cluster, simulator, cores="1")
        output = first.run("sync")
        assert "copy accounts" in output
        assert {"defs.yaml", "sync.log"} == first.files()
        output += all_text(first.folder)
        # Whatever the first machine knew is gone with it.
        shutil.rmtree(first.folder)
        output += second.status() + second.run("check", "--junit", second.folder / "checks.xml")
        (report,) = ET.parse(second.folder / "checks.xml").getroot()  # noqa: S314  our own file
        assert str(len(CHECKS)) == report.get("tests")
        assert {"defs.yaml", "check.log", "checks.xml"} == second.files()

    settings = load(second, services)
    assert sum_of_balances(settings) == ACCOUNTS * OPENING_BALANCE
    assert {"lake"} == {key.split("/")[0] for key in services.store.object_keys()}
    for log in cluster.executor_logs():
        assert "Running task" in log
        assert "Fetching spark://127.0.0.1" in log
    assert "(redacted)" in all_text(second.folder / "events")
    text = all_text(cluster.folder)
    assert not [folder for folder in (first.folder, second.folder) if str(folder) in text]
    assert set() == services.leaks_in("\n".join((output, text, all_text(second.folder), repr(settings))))


def make_driver(
    folder: Path, services: Services, cluster: SparkCluster, simulator: Simulator, **changes: str
) -> Driver:
    """Return a new machine with the pipeline's file."""
    events = folder / "events"
    events.mkdir(parents=True)
    changes |= simulator.names()
    write_defs(folder, services, **changes, master=cluster.url, python=cluster.python, events=events)
    return Driver(folder, services.variables())


def load(driver: Driver, services: Services) -> PipelineSettings:
    """Return the settings of a machine's pipeline."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in services.variables().items():
            patch.setenv(name, value)
        return load_settings(driver.folder / "defs.yaml")


def sum_of_balances(settings: PipelineSettings) -> int:
    """Return the sum of all balances as readers without Spark see it."""
    table = Lake(settings.lake, settings.name).table("accounts")
    assert table is not None
    return sum(table.scan(selected_fields=("balance",)).to_arrow()["balance"].to_pylist())
