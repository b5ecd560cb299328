"""`cdc-platform check`: all checks over the whole log, for people and for CI."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import click

from cdc_platform.commands.error_texts import error_text
from cdc_platform.commands.options import DEFS, EVERY_NAME, CommandOnDefs, examples, write_file
from cdc_platform.commands.pipelines import open_existing_of, run_on_each, share_spark
from cdc_platform.printing.lines import join_lines, print_line
from cdc_platform.printing.progress_display import show_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.pipeline.checks.check_result import Check, CheckResult
    from cdc_platform.pipeline.opened.pipeline import Pipeline

    Results = list[tuple[Check, CheckResult, float]]


@click.command(
    cls=CommandOnDefs,
    epilog=examples(
        "check examples/my_bank/defs.yaml", "check examples/my_bank/defs.yaml --junit checks.xml"
    ),
)
@DEFS
@EVERY_NAME
@click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), help="Write the results as JUnit XML, for CI."
)
def check(defs: Path, name: str | None, junit: Path | None) -> None:
    """Run the checks of the pipelines in DEFS, over the whole log.

    If the source can return its rows at a cut, as Spanner can, the tables are also compared with it.

    Prints a line for each check, and stores the results in the lake for `status` and the status page. The
    exit code is 1 if a check fails, or if one of the pipelines has never run. A warning does not change it;
    with the setting `fail_on_quarantine`, records in quarantine are a failure.
    """
    from cdc_platform.components.loading import load_each

    all_settings = share_spark(defs, load_each(defs, name))
    pipelines = open_existing_of(all_settings)
    if junit is not None:
        # An unwritable place fails before the slow checks. An interrupted run, and one that could not
        # check a pipeline, leave an empty file, which is no valid JUnit.
        write_file("--junit", junit, "")
    results = dict(run_on_each(all_settings, pipelines, _check))
    if junit is not None and len(results) == len(pipelines):
        write_file("--junit", junit, as_junit(results))
    sys.exit(0 if len(results) == len(all_settings) and all(map(all_passed, results.values())) else 1)


def _check(
    pipeline: "Pipeline", spark: "SparkSession", wants_more: Callable[[], bool]
) -> "tuple[str, Results]":
    from cdc_platform.pipeline.checks.invariants import checks_of

    checks = checks_of(pipeline.capabilities, fail_on_quarantine=pipeline.settings.fail_on_quarantine)
    return pipeline.name, run_checks(checks, pipeline, spark, wants_more)


def all_passed(results: "Results") -> bool:
    """Return whether all checks passed, except for those that only warn."""
    return all(result.passed or invariant.is_warning for invariant, result, _ in results)


def run_checks(
    checks: "Sequence[Check]",
    pipeline: "Pipeline",
    spark: "SparkSession",
    wants_more: Callable[[], bool] = lambda: True,
) -> "Results":
    """Run every check while more is wanted, print a line for each, store and return results, with seconds."""
    from cdc_platform.pipeline.checks.check_result import EVERYTHING, CheckResult, checking
    from cdc_platform.pipeline.checks.stored_results import store_results

    results = []
    with show_progress(pipeline.progress), pipeline.progress.step("checks", "checks", len(checks)) as step:
        for invariant in takewhile(lambda _: wants_more(), checks):
            start_s = time.monotonic()
            try:
                with checking(pipeline, spark, [invariant], invariant.name):
                    result = invariant.examine(pipeline, spark, EVERYTHING)
            except Exception as error:  # an error in one check fails only that check
                if not wants_more():
                    # The signal that ends the checks has ended Spark, too.
                    raise
                result = CheckResult(passed=False, summary=error_text(error), facts={})
            seconds = time.monotonic() - start_s
            step.advance()
            _print_result(invariant, result, seconds)
            results.append((invariant, result, seconds))
        store_results(pipeline, {invariant: result for invariant, result, _ in results})
    return results


def _print_result(invariant: "Check", result: "CheckResult", seconds: float) -> None:
    failure = ("warn  ", "yellow") if invariant.is_warning else ("FAILED", "bold red")
    text, style = ("ok    ", "green") if result.passed else failure
    print_line((text, style), f" {invariant.name:<20} {result.summary} ({seconds:.1f} s)")


def as_junit(results_by_pipeline: "Mapping[str, Results]") -> str:
    """Return the results of the checks of pipelines, by pipeline name, as JUnit XML."""
    suites = ET.Element("testsuites")
    for pipeline, results in results_by_pipeline.items():
        failures = sum(not (result.passed or invariant.is_warning) for invariant, result, _ in results)
        name = f"cdc-platform check {pipeline}"
        counts = {"tests": str(len(results)), "failures": str(failures)}
        suite = ET.SubElement(suites, "testsuite", {"name": name, **counts})
        for invariant, result, seconds in results:
            _add_case(suite, pipeline, invariant, result, seconds)
    # XML cannot hold control characters.
    return join_lines(ET.tostring(suites, encoding="unicode", xml_declaration=True).split("\n"))


def _add_case(
    suite: ET.Element, pipeline: str, invariant: "Check", result: "CheckResult", seconds: float
) -> None:
    attributes = {
        "classname": f"{pipeline}.{invariant.asset}",
        "name": invariant.name,
        "time": f"{seconds:.3f}",
    }
    case = ET.SubElement(suite, "testcase", attributes)
    if not result.passed and not invariant.is_warning:
        ET.SubElement(case, "failure", {"message": result.summary}).text = invariant.description
    facts = [f"{name}={fact}" for name, fact in result.facts.items()]
    for table, of_table in result.tables.items():
        facts += [f"{table}.{name}={fact}" for name, fact in of_table.facts.items()]
    warnings = [f"warning={result.summary}"] if invariant.is_warning and not result.passed else []
    ET.SubElement(case, "system-out").text = "\n".join([*warnings, *facts])
