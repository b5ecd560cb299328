"""Files that declare several pipelines: one rule for all commands."""

import errno
import json
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_platform.commands import pipelines
from cdc_platform.commands.error_texts import ERROR_PAGES
from cdc_platform.commands.pipelines import share_spark, try_each
from cdc_platform.components.loading import load_each, load_settings
from cdc_platform.errors import CommitConflict, SettingError
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.spark.launch.config import PACKAGES_SETTING, spark_config
from cdc_platform.spark.launch.spark_settings import DEFAULT_PACKAGES, POSTGRESQL_DRIVER
from cdc_platform_tests.commands.invoking import begin, run
from cdc_platform_tests.lake.quarantine_entries import quarantine, quarantine_entry
from cdc_platform_tests.yaml_files import bank_attributes, write_defs, write_two

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MISSING_FILE = "NotFoundException: File does not exist: file:/lake/bank/accounts/data/a.parquet"
REPORTS = ("status", "quarantine list", "cuts")


def several_lakes(folder: Path) -> Path:
    """Return the file of two pipelines, each with a lake and a record in quarantine."""
    defs = begin(write_two(folder, bank_attributes(name="shop", lake={"path": "other"})))
    for name in ("bank", "shop"):
        quarantine(open_pipeline(load_settings(defs, name)).lake, 1, quarantine_entry(f"of {name}"))
    return defs


@pytest.mark.parametrize("command", REPORTS)
def test_reports_cover_all_pipelines_or_the_one_of_a_name(tmp_path: Path, command: str) -> None:
    """They start no Spark, so the pipelines may be in several lakes; each is named above its report."""
    defs = several_lakes(tmp_path)
    code, output, errors = run(*command.split(), defs)
    named = [line.split(",")[0].split() for line in output.splitlines() if line.startswith("pipeline ")]
    assert (code, named, errors) == (0, [["pipeline", "bank"], ["pipeline", "shop"]], "")
    code, alone, _ = run(*command.split(), defs, "--name", "shop")
    assert (code, "bank" in alone, alone.splitlines()[-1] in output) == (0, False, True)


def test_json_names_the_pipeline_of_everything_in_it(tmp_path: Path) -> None:
    """It is one array, whether the file declares several pipelines or one is chosen."""
    defs = several_lakes(tmp_path)
    assert [status["pipeline"] for status in json.loads(run("status", defs, "--json")[1])] == ["bank", "shop"]
    records = json.loads(run("quarantine", "list", defs, "--json")[1])
    assert [(record["pipeline"], record["record"]) for record in records] == [
        ("bank", "of bank"),
        ("shop", "of shop"),
    ]
    (record,) = json.loads(run("quarantine", "list", defs, "--name", "shop", "--json")[1])
    assert records[1] == record
    assert json.loads(run("cuts", defs, "--json")[1]) == []


@pytest.mark.parametrize("command", REPORTS)
def test_a_pipeline_that_has_never_run_hides_no_other(tmp_path: Path, command: str) -> None:
    """The others are reported, stderr says what is missing, and the exit code is 1."""
    defs = begin(write_two(tmp_path), "bank")
    code, output, errors = run(*command.split(), defs)
    assert (code, "pipeline" in output, "shop" in output) == (1, True, False)
    assert errors.startswith(f"PipelineNotFound: The lake at {tmp_path / 'lake'} holds no pipeline `shop`")


@pytest.mark.parametrize("command", REPORTS)
def test_pipelines_that_have_never_run_are_all_named(tmp_path: Path, command: str) -> None:
    """A folder of new pipelines says so of each."""
    code, output, errors = run(*command.split(), write_two(tmp_path))
    assert (code, output, errors.count("PipelineNotFound: ")) == (1, "", 2)
    assert set(re.findall(r"`(?:bank|shop)`", errors)) == {"`bank`", "`shop`"}


@pytest.mark.parametrize(
    "command",
    [
        *("explain DEFS accounts 1", "quarantine show DEFS a", "quarantine replay DEFS"),
        *("cuts DEFS --pin 1", "cuts DEFS --unpin 1", "spark-server DEFS", "query DEFS SQL"),
    ],
)
def test_what_is_about_one_pipeline_needs_its_name(tmp_path: Path, command: str) -> None:
    """A command that changes something, or asks about one pipeline, does not choose one by itself."""
    defs = write_two(tmp_path)
    code, _, errors = run(*(str(defs) if word == "DEFS" else word for word in command.split()))
    assert (code, "choose one with `--name`: `bank`, `shop`" in errors) == (1, True)
    assert [defs] == list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["sync", "check", "maintain", *REPORTS])
def test_a_mistake_in_any_document_is_found_before_anything_runs(tmp_path: Path, command: str) -> None:
    """The first pipeline is fine, and nothing of it is run or shown."""
    defs = begin(write_two(tmp_path), "bank")
    text = defs.read_text(encoding="utf-8").replace("name: shop", "name: shop\n  read_tasks: 0")
    defs.write_text(text, encoding="utf-8")
    code, output, errors = run(*command.split(), defs)
    assert (code, output) == (1, "")
    assert "read_tasks` must be at least 1, but is: 0" in errors


def test_one_spark_has_the_packages_of_all_pipelines(tmp_path: Path) -> None:
    """A package that one source adds to Spark does not separate the pipelines."""
    defs = write_two(tmp_path, bank_attributes(name="shop", spark={"packages": ["org.example:own:1"]}))
    first, second = share_spark(defs, load_each(defs))
    assert first.spark == second.spark
    assert first.spark.packages == (*DEFAULT_PACKAGES, "org.example:own:1")


def test_one_spark_has_what_the_lakes_of_all_pipelines_need(tmp_path: Path) -> None:
    """A running Spark loads no driver of a catalog for a pipeline behind the first one."""
    lake = {"path": "other", "catalog": {"type": "sql", "uri": "postgresql+psycopg2://u@h/d"}}
    defs = write_two(tmp_path, bank_attributes(name="shop", lake=lake))
    first, second = share_spark(defs, load_each(defs))
    assert POSTGRESQL_DRIVER in first.spark.packages
    assert spark_config(second.spark, second.lake)[PACKAGES_SETTING] == ",".join(first.spark.packages)


@pytest.mark.integration
def test_pipelines_of_one_lake_share_a_session(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session for each pipeline would start or ask Spark again, and count its tasks once more."""
    started = list[str]()

    def start(settings: PipelineSettings) -> "SparkSession":
        started.append(settings.name)
        return spark

    monkeypatch.setattr(pipelines, "start_spark", start)
    source, lake = {"path": str(tmp_path)}, {"path": session_lake.path}
    attributes = {"name": "several_one", "source": source, "lake": lake}
    own = write_defs(tmp_path, attributes, "cdc_platform.components.datastream.DatastreamPipeline")
    first = own.read_text(encoding="utf-8")
    own.write_text(f"{first}---\n{first.replace('several_one', 'several_two')}", encoding="utf-8")
    code, output, errors = run("maintain", begin(own))
    assert (code, started) == (0, ["several_one"]), errors
    assert [f"pipeline several_{name}" for name in ("one", "two")] == [
        line for line in output.splitlines() if line.startswith("pipeline ")
    ]


def test_a_server_has_one_lake(tmp_path: Path) -> None:
    """In a process of their own, pipelines of several lakes share Spark, but a server has one catalog."""
    defs = write_two(tmp_path, bank_attributes(name="shop", lake={"path": "other"}))
    settings = list(load_each(defs))
    assert settings == share_spark(defs, settings)
    remote = [replace(each, spark=replace(each.spark, remote="sc://spark")) for each in settings]
    with pytest.raises(SettingError, match=r"lake\.path` differs between `bank` and `shop`"):
        share_spark(defs, remote)


def damage_one(folder: Path) -> Path:
    """Return the file of two pipelines, of which the first has garbage for a catalog."""
    defs = several_lakes(folder)
    (catalog,) = (folder / "lake").rglob("catalog.db")
    catalog.write_bytes(b"garbage " * 1000)
    return defs


def test_a_damaged_lake_hides_no_other_from_a_list(tmp_path: Path) -> None:
    """Its row says why it cannot be read, and the exit code is 1."""
    defs = damage_one(tmp_path)
    code, output, _ = run("list", defs)
    first, second = output.splitlines()[1:]
    assert (code, second.split()[0]) == (1, "shop")
    assert "cannot be read: LakeDamaged: " in first
    listed = json.loads(run("list", defs, "--json")[1])
    assert [str(pipeline["error"]).partition(":")[0] for pipeline in listed] == ["LakeDamaged", "None"]


@pytest.mark.parametrize("command", REPORTS)
def test_a_damaged_lake_hides_no_other_from_reports(tmp_path: Path, command: str) -> None:
    """The others are reported, and the exit code is 1."""
    code, output, errors = run(*command.split(), damage_one(tmp_path))
    assert (code, "pipeline" in output, "shop" in output) == (1, True, True)
    assert "LakeDamaged: " in output + errors


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (CommitConflict("overtaken"), "CommitConflict"),
        (OSError(errno.ENOSPC, "No space left on device"), "DiskFull"),
        (RuntimeError(MISSING_FILE), "LakeDamaged"),
    ],
)
def test_an_expected_error_ends_its_pipeline_alone(
    error: Exception, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error of one pipeline leads to its page, also where a library raised it, and the others go on."""

    def work(number: int) -> int:
        if number == 1:
            raise error
        return number

    assert try_each([1, 2], work) == [2]
    lines = capsys.readouterr().err.splitlines()
    assert (f"{name}:", f"See {ERROR_PAGES[0] / name}.md") == (lines[0].split()[0], lines[-1])


def test_a_defect_ends_the_command() -> None:
    """An error that nothing explains needs its traceback."""

    def work(_number: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        try_each([1, 2], work)


@pytest.mark.parametrize(("wants_more", "expected"), [(True, [2]), (False, [])])
def test_a_signal_ends_what_goes_on_after_an_error(*, wants_more: bool, expected: list[int]) -> None:
    """An error after a signal may be its effect, and ends the command; another one ends its pipeline."""
    done: list[int] = []

    def work(number: int) -> None:
        if number == 1:
            raise CommitConflict("overtaken")
        done.append(number)

    with nullcontext() if wants_more else pytest.raises(CommitConflict):
        try_each([1, 2], work, lambda: wants_more)
    assert expected == done
