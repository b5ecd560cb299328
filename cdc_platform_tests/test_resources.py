"""Output of Spark's launcher: reported while it starts, collected for errors, and passed on afterwards."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import dagster as dg
import pytest

from cdc_platform import resources
from cdc_platform.components.loading import load_settings
from cdc_platform.errors import SettingError
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.progress_lines import report_lines
from cdc_platform.resources import run_resource, spark_session
from cdc_platform.spark.launch.config import spark_config
from cdc_platform.spark.session.lake_sessions import WAREHOUSE, open_lake_session
from cdc_platform_tests.spark_fixtures import TEST_SPARK
from cdc_platform_tests.support.sessions import session_of
from cdc_platform_tests.yaml_files import bank_attributes, write_defs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHIN_S: Final = 60.0
SCRIPT = """
import os, sys, time
from cdc_platform.resources import SPARK_IS_QUIET, _launcher_output

def report(line):
    print(f"reported {line}", file=sys.stderr)

with _launcher_output(report) as lines:
    launcher = os.dup(2)  # as the JVM gets it
    os.write(launcher, b"downloading one.jar\\n")
    while not lines:
        time.sleep(0.01)
    time.sleep(0.2)
    print("collected", len(lines), file=sys.stderr)
os.write(launcher, b"handed on\\n")
input()  # the test has read it
SPARK_IS_QUIET.set()
os.write(launcher, b"kept quiet\\n")
time.sleep(0.2)
"""


def test_what_the_launcher_says_is_reported_once() -> None:
    """A report reaches the terminal at once, and is not taken for something that the launcher said."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdin=pipe, stderr=pipe, text=True) as script:
        assert script.stdin is not None
        assert script.stderr is not None
        lines = [script.stderr.readline() for _ in range(3)]
        script.stdin.write("\n")
        script.stdin.close()
        lines += script.stderr.readlines()
    assert lines == ["reported downloading one.jar\n", "collected 1\n", "handed on\n"]
    assert script.returncode == 0


def test_a_run_that_no_step_uses_claims_and_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster may create the resources of a run again after its end: only a step claims and opens it."""

    def refuse(*_arguments: object) -> None:
        raise AssertionError

    for name in ("claim_run", "open_pipeline", "start_session"):
        monkeypatch.setattr(resources, name, refuse)
    made = run_resource(load_settings(write_defs(tmp_path)))
    with dg.DagsterInstance.ephemeral() as instance, dg.build_resources({"run": made}, instance) as opened:
        assert isinstance(opened.run, resources.PipelineRun)


def test_a_server_that_only_the_environment_names_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the variable and the setting to use instead, and never a token."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark:15002/;token=hush")
    with pytest.raises(SettingError, match=r"`spark\.remote` is not set, but .* SPARK_REMOTE is") as raised:
        spark_session(load_settings(write_defs(tmp_path)))
    assert str(raised.value).endswith("the pipeline's work: sc://spark:15002/")


def test_the_log_of_a_run_has_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a step takes long, lines with the numbers that a terminal would show come into the run's log."""
    monkeypatch.setattr(resources, "report_lines", partial(report_lines, every_s=0.1))
    run = run_resource(load_settings(write_defs(tmp_path)))

    @dg.op(required_resource_keys={"run"})
    def read(context: dg.OpExecutionContext) -> None:
        with context.resources.run.progress.step("read", "records") as step:
            step.advance(7)
            end = time.monotonic() + WITHIN_S
            while not progress_of(context.instance, context.run_id) and time.monotonic() < end:
                pass

    @dg.job(resource_defs={"run": run})
    def work() -> None:
        read()

    with dg.DagsterInstance.ephemeral() as instance:
        result = work.execute_in_process(instance=instance)
        lines = progress_of(instance, result.run_id)
    assert lines[0].startswith("read: 7 records, ")


def progress_of(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    """Return the lines of a run's log that report its progress."""
    entries = instance.all_logs(run_id)
    return [entry.user_message for entry in entries if entry.user_message.endswith(" so far")]


@pytest.mark.integration
def test_a_process_has_a_session_for_each_lake(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """Spark starts once; each lake has its own catalog, whichever session or thread is active."""

    def asked(lake: str) -> "SparkSession":
        conf = {"driver_memory": TEST_SPARK.driver_memory, "conf": {**TEST_SPARK.conf}}
        defs = write_defs(tmp_path, bank_attributes(lake={"path": lake}, spark=conf))
        return spark_session(load_settings(defs))

    def warehouse_of(session: "SparkSession") -> str | None:
        return session.conf.get(WAREHOUSE)

    other = LakeSettings(str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    assert asked(session_lake.path) is spark
    with ThreadPoolExecutor(1) as threads:
        other_session = threads.submit(asked, other.path).result()
    other_session.sql("CREATE NAMESPACE lake.other")
    other_session.createDataFrame([(1,)], "number INT").writeTo("lake.other.numbers").create()
    assert [tuple(row) for row in other_session.table("lake.other.numbers").collect()] == [(1,)]
    assert other.spark_properties()["warehouse"] == warehouse_of(other_session)
    assert session_lake.spark_properties()["warehouse"] == warehouse_of(asked(session_lake.path))
    assert asked(session_lake.path) is spark
    assert not spark.catalog.databaseExists("lake.other")


@pytest.mark.integration
def test_jars_that_a_later_request_does_not_name_stay_loaded(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """A request for a session that exists writes its own class path into the session's settings."""
    attributes = bank_attributes(lake={"path": session_lake.path})
    assert spark_session(load_settings(write_defs(tmp_path, attributes))) is spark
    (tmp_path / "other").mkdir()
    assert session_of(spark, LakeSettings(str(tmp_path / "other"))) is not spark


@pytest.mark.integration
def test_a_lake_that_needs_other_jars_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    """A running Spark loads no further jars for the catalog or the store of another lake."""
    attributes = bank_attributes(spark={"packages": ["org.example:own:1"]})
    settings = load_settings(write_defs(tmp_path, attributes))
    with pytest.raises(SettingError, match=r"`lake\.path` needs jars .*\(own:1\)"):
        open_lake_session(spark, spark_config(settings.spark, settings.lake))
