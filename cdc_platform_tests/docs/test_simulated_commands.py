"""Commands of pages about the simulated Spanner run as they stand, on a simulator that one of them starts."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_platform.commands.operating import sync
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform_tests.commands.invoking import run
from cdc_platform_tests.docs.code_blocks import ROOT, Block
from cdc_platform_tests.docs.shown_commands import OF_SIMULATOR, WITHIN_S, run_commands
from cdc_platform_tests.programs import COMMAND_LINE, free_port, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAKE = "../../.cdc_platform/examples/bank/lake"


@pytest.fixture(scope="module")
def project(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A folder with the example of the bank and a pipeline of one's own, after a `sync` of the first."""
    folder, port = tmp_path_factory.mktemp("project"), free_port()
    text = (ROOT / "examples" / "bank" / "defs.yaml").read_text(encoding="utf-8")
    text = text.replace(":9010", f":{port}").replace(LAKE, session_lake.path)
    for name in ("bank", "my_bank"):
        defs = folder / "examples" / name / "defs.yaml"
        defs.parent.mkdir(parents=True)
        defs.write_text(text.replace("name: bank", f"name: {name}"), encoding="utf-8")
    options = ("simulate", "--port", str(port), "--rate", "5", "--age", "5")
    with (
        start(folder / "simulator.log", COMMAND_LINE, *options) as simulator,
        pytest.MonkeyPatch.context() as patch,
    ):
        simulator.wait_for("SPANNER_EMULATOR_HOST=", WITHIN_S)
        # A process has one session, and the tests share it.
        patch.setattr(sync, "start_spark", lambda _settings: spark)
        for name in ("bank", "my_bank"):
            code, output, errors = run("sync", folder / "examples" / name / "defs.yaml")
            assert code == 0, output + errors
        yield folder


@pytest.mark.integration
@pytest.mark.parametrize("block", OF_SIMULATOR, ids=lambda block: block.place)
def test_commands_run(block: Block, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of a block ends with 0, and one without an end serves until it is stopped."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("CDC_PLATFORM_DEFS", "examples")
    run_commands(block, project, {})
