"""`cdc-platform check`: its lines, its JUnit file, and when it ends."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast
from xml.etree import ElementTree as ET

import pytest

from cdc_platform.commands.options import write_file
from cdc_platform.commands.reading.check import all_passed, as_junit, run_checks
from cdc_platform.components.loading import load_settings
from cdc_platform.errors import SettingError, SourceUnreachable
from cdc_platform.lake.state.last_results import load_results
from cdc_platform.pipeline.checks.check_result import Check, CheckResult, Severity
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform_tests.yaml_files import write_defs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the size of the lake: these tests have none."""
    monkeypatch.setattr("cdc_platform.pipeline.checks.check_result.checking", lambda *_: nullcontext())


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline that has never run."""
    return open_pipeline(load_settings(write_defs(tmp_path)))


def a_check(name: str, *, passes: bool, error: Exception | None = None) -> Check:
    """Return a check with a known end."""

    def run(*_args: object) -> CheckResult:
        if error is not None:
            raise error
        return CheckResult(passes, f"{name} was looked at", {"rows": 3})

    return Check(name, "change_log", f"Rule {name}.", every_cycle=True, run=run, severity=Severity.STOP)


def test_checks_print_a_line_each(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    """Every check runs even if others fail; a check that raises an error has failed; all are stored."""
    checks = (
        a_check("first", passes=True),
        a_check("second", passes=False),
        a_check("third", passes=True, error=SourceUnreachable("nobody answers")),
        a_check("fourth", passes=True, error=ValueError("a file is gone\nand a stack of Java's")),
    )
    results = run_checks(checks, pipeline, cast("SparkSession", None))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["ok", "first"],
        ["FAILED", "second"],
        ["FAILED", "third"],
        ["FAILED", "fourth"],
    ]
    assert "SourceUnreachable: nobody answers" in lines[2]
    assert "ValueError: a file is gone (" in lines[3]
    assert not all_passed(results)
    stored = {result.name: (result.asset, result.has_failed) for result in load_results(pipeline.lake)}
    log = "bank__cdc/change_log"
    assert stored == {
        "first": (log, False),
        "second": (log, True),
        "third": (log, True),
        "fourth": (log, True),
    }


def test_checks_end_when_no_more_are_wanted(pipeline: Pipeline) -> None:
    """After a signal the running check finishes, and no other check starts."""
    checks = tuple(a_check(name, passes=True) for name in ("first", "second"))
    answers = iter([True, False])
    results = run_checks(checks, pipeline, cast("SparkSession", None), lambda: next(answers))
    assert [check.name for check, _, _ in results] == ["first"]


def test_what_breaks_after_a_signal_is_no_check_result(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    """A signal ends Spark, too; the error of the running check is not reported as its failure."""
    checks = (a_check("first", passes=True, error=ConnectionError("Spark is gone")),)
    answers = iter([True, False])
    with pytest.raises(ConnectionError):
        run_checks(checks, pipeline, cast("SparkSession", None), lambda: next(answers))
    assert capsys.readouterr().out == ""


def test_junit_names_what_failed() -> None:
    """The JUnit file has a suite for each pipeline, a case for each check, and what those say that failed."""
    passed, failed = a_check("good", passes=True), a_check("bad", passes=False)
    results = [(check, check.run(None, None, None), 0.5) for check in (passed, failed)]  # type: ignore[arg-type]  # they look at nothing
    of_table = CheckResult(passed=False, summary="", facts={"rows": 2})
    results[1] = (failed, replace(results[1][1], tables={"accounts": of_table}), 0.5)
    suites = ET.fromstring(as_junit({"bank": results, "shop": results[:1]}))  # noqa: S314  our own text
    assert [(suite.get("tests"), suite.get("failures")) for suite in suites] == [("2", "1"), ("1", "0")]
    suite = suites[0]
    cases = {case.get("name"): case for case in suite}
    assert cases["good"].find("failure") is None
    failure = cases["bad"].find("failure")
    assert failure is not None
    assert failure.get("message") == "bad was looked at"
    assert cases["bad"].findtext("system-out") == "rows=3\naccounts.rows=2"


def test_a_report_is_written_wherever_it_can_be(tmp_path: Path) -> None:
    """Its folder is made; where that cannot be, the option is named."""
    write_file("--junit", tmp_path / "new" / "checks.xml", "<testsuite/>")
    assert (tmp_path / "new" / "checks.xml").read_text(encoding="utf-8") == "<testsuite/>"
    with pytest.raises(SettingError, match="`--junit` names a file that cannot be written"):
        write_file("--junit", tmp_path / "new" / "checks.xml" / "inside", "")


def test_a_report_is_xml_whatever_a_name_holds() -> None:
    """A control character of the source, which XML cannot hold, is escaped in the JUnit file."""
    check = a_check("first", passes=True)
    result = CheckResult(passed=False, summary="table `\x1b[2J\x00` lacks a row", facts={})
    (suite,) = ET.fromstring(as_junit({"bank": [(check, result, 0.1)]}))  # noqa: S314  our own text
    assert r"table `\u001b[2J\u0000` lacks a row" in ET.tostring(suite, encoding="unicode")
