"""Dagster's own commands run a pipeline's job, and their exit code says how the run ended."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cdc_platform_tests.programs import ENVIRONMENT
from cdc_platform_tests.spark_fixtures import TEST_SPARK, require_java

pytestmark = pytest.mark.integration

ROOT: Final = Path(__file__).parents[1]
EXAMPLE: Final = ROOT / "examples" / "datastream"
PROGRAMS: Final = Path(sys.executable).parent
JOB: Final = "shop_sync"

COMMANDS: Final = {
    "dagster": ("dagster", "job", "execute", "-m", "cdc_platform.definitions", "-j", JOB),
    "dg": ("dg", "launch", "--job", JOB),
}


@dataclass(frozen=True)
class Project:
    """The example of Datastream with a lake and an instance of Dagster in a separate folder."""

    folder: Path

    def declare(self, name: str, spark: Mapping[str, Any]) -> Path:
        """Write the example's file with other settings of Spark, and return it."""
        document = yaml.safe_load((EXAMPLE / "defs.yaml").read_text(encoding="utf-8"))
        attributes = document["attributes"]
        attributes["source"]["path"] = str(EXAMPLE / attributes["source"]["path"])
        attributes |= {"lake": {"path": str(self.folder / "lake")}, "spark": dict(spark)}
        defs = self.folder / f"{name}.yaml"
        defs.write_text(yaml.safe_dump(document), encoding="utf-8")
        return defs

    def run(self, command: str, defs: Path) -> "subprocess.CompletedProcess[str]":
        """Run the pipeline's job by one of Dagster's commands."""
        program, *arguments = COMMANDS[command]
        return subprocess.run(
            [str(PROGRAMS / program), *arguments],
            cwd=ROOT,
            env={**ENVIRONMENT, "DAGSTER_HOME": str(self.folder), "CDC_PLATFORM_DEFS": str(defs)},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=600,
            check=False,
        )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One lake and one instance for all runs of this file."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    return Project(folder)


def test_a_run_that_succeeds_ends_with_zero(project: Project) -> None:
    """The command looks at the results of a run that is over, and that neither fails nor claims a run.

    `dg launch` calls what `dagster job execute` calls.
    """
    require_java()
    ended = project.run("dg", project.declare("shop", {"conf": {**TEST_SPARK.conf}}))
    assert "RUN_SUCCESS" in ended.stdout
    assert ended.returncode == 0, ended.stdout


def test_a_run_that_fails_does_not_end_with_zero(project: Project) -> None:
    """A script that runs the command learns that the run failed, and reads why."""
    ended = project.run("dagster", project.declare("unreachable", {"remote": "sc://127.0.0.1:1"}))
    assert "No Spark Connect server answers" in ended.stdout
    assert "RUN_FAILURE" in ended.stdout
    assert ended.returncode == 1, ended.stdout
