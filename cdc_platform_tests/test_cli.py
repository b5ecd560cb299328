"""The command line: what it says, and how it exits."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from cdc_platform import cli
from cdc_platform.cli import as_junit, describe_tick, main
from cdc_platform.components.loading import load_settings
from cdc_platform.errors import CommitConflict, SourceUnreachable
from cdc_platform.lake.cuts import Cut
from cdc_platform.model.records import RecordKind
from cdc_platform.pipeline.order import OrderOutcome
from cdc_platform.pipeline.pipeline import open_pipeline
from cdc_platform.pipeline.read import ReadOutcome
from cdc_platform.pipeline.tick import TickOutcome
from cdc_platform.pipeline.verdict import Check, Verdict
from cdc_platform_tests.yaml_files import bank_attributes, write_defs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.pipeline.pipeline import Pipeline

COMMANDS = ("demo", "simulate", "sync", "status", "check", "explain", "cuts")
START = 1_800_000_000_000_000


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code, output and error output."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_examples(command: str) -> None:
    """The help of every command says what it does, and shows it in use."""
    code, output, _ = run(command, "--help")
    assert code == 0
    assert f"cdc-platform {command}" in output.split("Examples:")[1]


def test_the_first_page_names_all_commands() -> None:
    """Without knowing anything, `--help` leads to the demo and to a pipeline of one's own."""
    _, output, _ = run("--help")
    assert all(f"cdc-platform {command}" in output for command in COMMANDS)
    assert "dg scaffold" in output


def begin(defs: Path) -> Path:
    """Make the pipeline's part of the lake, as the first step of its first tick does, and return its file."""
    _ = open_pipeline(load_settings(defs)).lake.catalog
    return defs


@pytest.mark.parametrize("command", ["status", "check", "cuts", "explain accounts 1"])
def test_reading_makes_no_lake(tmp_path: Path, command: str) -> None:
    """Where no lake is, whoever reads learns what to do, and nothing is made."""
    verb, *arguments = command.split()
    code, output, errors = run(verb, write_defs(tmp_path), *arguments)
    assert (code, output) == (1, "")
    assert errors.startswith(f"PipelineNotFound: There is no lake at {tmp_path / 'lake'}")
    assert "`cdc-platform sync` begins it" in errors
    assert [tmp_path / "defs.yaml"] == list(tmp_path.iterdir())


def test_reading_makes_no_pipeline(tmp_path: Path) -> None:
    """A lake without the pipeline is left as it is, and those that it holds are named."""
    lake = open_pipeline(load_settings(begin(write_defs(tmp_path)))).lake
    before = lake.catalog.list_namespaces()
    code, _, errors = run("status", write_defs(tmp_path, bank_attributes(name="bnak")))
    assert code == 1
    assert "holds no pipeline `bnak`; it holds `bank`." in errors
    assert before == lake.catalog.list_namespaces()


def test_status_of_a_new_pipeline(tmp_path: Path) -> None:
    """A pipeline that has published nothing has a status, although nobody answers at the source."""
    code, output, _ = run("status", begin(write_defs(tmp_path)))
    assert code == 0
    assert "none yet" in output
    assert "0 live, 0 waiting, 0 finished" in output


def test_status_as_json(tmp_path: Path) -> None:
    """`--json` prints one JSON object with everything in it."""
    _, output, _ = run("status", begin(write_defs(tmp_path)), "--json")
    found = json.loads(output)
    assert (found["pipeline"], found["tick"], found["cut"], found["tables"]) == ("bank", 0, None, {})


def test_status_starts_no_spark(tmp_path: Path) -> None:
    """The status needs neither pyspark nor a JVM."""
    arguments = ["status", str(begin(write_defs(tmp_path)))]
    code = f"import sys; from cdc_platform.cli import main; main({arguments!r}, standalone_mode=False); "
    code += "print('pyspark' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "False"


def test_a_bad_setting_is_a_message_and_not_a_traceback(tmp_path: Path) -> None:
    """What is wrong with a file is one line on stderr, and exit code 1."""
    code, output, errors = run("status", write_defs(tmp_path, bank_attributes(name="My Bank")))
    assert (code, output) == (1, "")
    assert errors.startswith("SettingError: Setting `")
    assert "Traceback" not in errors


def test_a_pipeline_of_several_is_chosen_by_name(tmp_path: Path) -> None:
    """A file of two documents needs `--name`; the message says so, and the option does it."""
    first = begin(write_defs(tmp_path)).read_text(encoding="utf-8")
    second = write_defs(tmp_path, bank_attributes(name="shop"))
    second.write_text(f"{first}---\n{second.read_text(encoding='utf-8')}", encoding="utf-8")
    code, _, errors = run("status", second)
    assert (code, "`--name`: `bank`, `shop`" in errors) == (1, True)
    code, output, _ = run("status", second, "--name", "bank")
    assert (code, output.startswith("pipeline    bank,")) == (0, True)


def test_an_unreachable_source_ends_sync_before_spark_starts(tmp_path: Path) -> None:
    """`sync` asks the source first, so that a wrong address shows at once."""
    code, _, errors = run("sync", write_defs(tmp_path))
    assert code == 1
    assert errors.startswith("SourceUnreachable: ")
    assert "Starting Spark" not in errors


def test_sync_ends_in_one_way_only(tmp_path: Path) -> None:
    """Two ways to end are a usage error, with exit code 2."""
    code, _, errors = run("sync", write_defs(tmp_path), "--ticks", "1", "--continuous")
    assert code == 2
    assert "Choose one" in errors


def test_errors_of_the_platform_exit_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every error that the platform knows becomes exit code 1."""

    def conflict(*_args: object) -> None:
        raise CommitConflict("another run was first")

    monkeypatch.setattr("cdc_platform.pipeline.status.read_status", conflict)
    code, _, errors = run("status", begin(write_defs(tmp_path)))
    assert (code, errors) == (1, "CommitConflict: another run was first\n")


def a_check(name: str, *, passes: bool, error: Exception | None = None) -> Check:
    """Return a check with a known end."""

    def look(*_args: object) -> Verdict:
        if error is not None:
            raise error
        return Verdict(passes, f"{name} was looked at", {"rows": 3})

    return Check(name, "change_log", f"Promise of {name}.", every_tick=True, run=look)


def test_checks_print_a_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every check is run whatever the others say; one that cannot be made has failed."""
    checks = (
        a_check("first", passes=True),
        a_check("second", passes=False),
        a_check("third", passes=True, error=SourceUnreachable("nobody answers")),
    )
    monkeypatch.setattr("cdc_platform.pipeline.invariants.CHECKS", checks)
    results = cli.run_checks(cast("Pipeline", None), cast("SparkSession", None))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["ok", "first"],
        ["FAILED", "second"],
        ["FAILED", "third"],
    ]
    assert "SourceUnreachable: nobody answers" in lines[2]
    assert not cli.all_passed(results)


def test_checks_end_when_no_more_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal lets the check at hand end, and no other begins."""
    checks = tuple(a_check(name, passes=True) for name in ("first", "second"))
    monkeypatch.setattr("cdc_platform.pipeline.invariants.CHECKS", checks)
    answers = iter([True, False])
    results = cli.run_checks(cast("Pipeline", None), cast("SparkSession", None), lambda: next(answers))
    assert [check.name for check, _, _ in results] == ["first"]


def test_junit_tells_what_failed() -> None:
    """The JUnit file has a case for each check, and the summary of those that failed."""
    passed, failed = a_check("good", passes=True), a_check("bad", passes=False)
    results = [(check, check.run(None, None, None), 0.5) for check in (passed, failed)]  # type: ignore[arg-type]  # they look at nothing
    suite = ET.fromstring(as_junit("bank", results))  # noqa: S314  our own text
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    cases = {case.get("name"): case for case in suite}
    assert cases["good"].find("failure") is None
    failure = cases["bad"].find("failure")
    assert failure is not None
    assert failure.get("message") == "bad was looked at"
    assert cases["bad"].findtext("system-out") == "rows=3"


def test_a_tick_is_one_line() -> None:
    """The line of a tick has its number, watermark, lag, records, changes, cut and seconds."""
    read = ReadOutcome(
        7, (), {RecordKind.DATA_CHANGE: 40, RecordKind.HEARTBEAT: 2}, True, START + 2_500_000, START
    )
    cut = Cut(3, START, 7, {}, START)
    outcome = TickOutcome(read, OrderOutcome(7, START, 50, 20, 0), (), cut, {"read": 1.0, "merge": 0.52})
    assert describe_tick(outcome).split() == (
        [
            "tick",
            "7",
            "watermark",
            "2027-01-15T08:00:00.000000Z",
            "lag",
            "2.5",
            "s",
            "records",
            "42",
            "changes",
            "50",
            "cut",
            "3",
            "1.5",
            "s",
        ]
    )
