"""Results of a pipeline's checks in its lake."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Final

from cdc_platform.errors import CdcError
from cdc_platform.lake.state.last_results import LastResult, load_results, save_results
from cdc_platform.model.base.names import DAGSTER_CHECKS, lake_table_name
from cdc_platform.model.base.timestamps import DAY_S, to_rfc3339
from cdc_platform.model.schema.table_options import history_name
from cdc_platform.pipeline.checks.check_result import EVERYTHING, Check, CheckResult, Scope, Severity
from cdc_platform.pipeline.checks.invariants import checks_of
from cdc_platform.pipeline.opened.pipeline import Pipeline

DAGSTER_RESULTS_S: Final = 7.0 * DAY_S
"""Age at which the result of a check that only Dagster runs goes: nothing else shows that it runs no more."""


def store_results(
    pipeline: Pipeline,
    results: Mapping[Check, CheckResult],
    scope: Scope = EVERYTHING,
    unchanged_after_s: float = 0.0,
) -> None:
    """Store results in the lake: in total and by table, or by table alone if the scope names tables.

    Former results of checks that the pipeline no longer makes go. ``unchanged_after_s`` is that of
    `save_results`.
    """
    lake, at_s, is_total, entries = pipeline.lake, time.time(), scope.tables is None, []
    for check, result in results.items():
        places = {(check.name, f"{lake.system_namespace}/{check.asset}"): result} if is_total else {}
        for table, of_table in result.tables.items():
            places[check.table_name, f"{lake.pipeline}/{lake_table_name(table)}"] = of_table
        entries += [
            LastResult(*place, of_place.passed, check.is_warning, at_s, of_place.summary, result.is_partial)
            for place, of_place in places.items()
        ]
    # A check of all tables has a result of each, unless an error ended it; the others are of tables that are
    # in no cut any more.
    complete = {check.table_name for check, result in results.items() if result.tables and is_total}
    # A lake that cannot be read must not replace the results: only storing them asks for it.
    is_current = cache(lambda: _current_checks(pipeline, at_s))

    def stays(former: LastResult) -> bool:
        is_of_table = former.asset.startswith(f"{lake.pipeline}/")
        return not (is_of_table and former.name in complete) and is_current()(former)

    save_results(lake, entries, stays=stays, unchanged_after_s=unchanged_after_s)


def _current_checks(pipeline: Pipeline, now_s: float) -> Callable[[LastResult], bool]:
    """Return whether the pipeline still makes the check of a result; asks neither Spark nor the source."""
    lake, checks = pipeline.lake, checks_of(pipeline.capabilities)
    names = pipeline.select_tables(pipeline.schema_history.tables)
    histories = (history_name(name) for name in names if pipeline.options(name).history)
    tables = {f"{lake.pipeline}/{lake_table_name(name)}" for name in (*names, *histories)}
    total = {(check.name, f"{lake.system_namespace}/{check.asset}") for check in checks}
    of_tables = {check.table_name for check in checks}

    def is_current(result: LastResult) -> bool:
        is_there = result.asset in tables or not result.asset.startswith(f"{lake.pipeline}/")
        if result.name in DAGSTER_CHECKS:
            return is_there and now_s - result.at_s < DAGSTER_RESULTS_S
        return result.place in total or (result.name in of_tables and result.asset in tables)

    return is_current


def with_open_failure(pipeline: Pipeline, check: Check, result: CheckResult) -> tuple[Check, CheckResult]:
    """Return a check and its result; if only new data passes, that is the failure of all data.

    The check then blocks nothing: what is new is sound.
    """
    place = (check.name, f"{pipeline.lake.system_namespace}/{check.asset}")
    # Damage to former results must not replace this one.
    with suppress(CdcError):
        for former in load_results(pipeline.lake) if result.is_partial and result.passed else ():
            if former.place == place and not (former.passed or former.is_partial):
                fault = f"the check of the whole log at {to_rfc3339(round(former.at_s * 1e6))} failed"
                summary = f"{result.summary}; but {fault}: {former.summary}"
                failure = replace(result, passed=False, summary=summary)
                return replace(check, severity=Severity.FAILURE), failure
    return check, result
