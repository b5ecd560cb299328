"""Results of checks in the lake: which of them a check leaves there, and how much it has examined."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.last_results import LastResult, load_results, save_results
from cdc_platform.model.base.names import FRESH, STREAM_IS_RUNNING
from cdc_platform.model.base.timestamps import DAY_S
from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.table_options import TableOptions, history_name
from cdc_platform.pipeline.checks.check_result import EVERYTHING, Check, CheckResult, Scope
from cdc_platform.pipeline.checks.invariants import CHECKS
from cdc_platform.pipeline.checks.stored_results import store_results, with_open_failure
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.support.pipelines import make_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMED: Final = {check.name: check for check in CHECKS}
PASSED: Final = CheckResult(passed=True, summary="fine", facts={})
NEW: Final = Scope(after_cycle=7, after_micros=7)
NO_SPARK: Final = cast("SparkSession", None)


def bank(tmp_path: Path) -> Pipeline:
    """Return a pipeline of accounts with a history and transfers without one, which asks no source."""
    with_history = {"accounts": TableOptions(history=True)}
    pipeline = make_pipeline(LakeSettings(str(tmp_path / "lake")), (), name="bank", options=with_history)
    histories = {name: ColumnHistory(name) for name in ("accounts", "transfers")}
    pipeline.use_history(SchemaHistory(cycle=1, tables=histories))
    return pipeline


def places(pipeline: Pipeline) -> set[tuple[str, str]]:
    """Return the checks and assets of which the lake has results."""
    return {result.place for result in load_results(pipeline.lake)}


def test_only_checks_that_the_pipeline_makes_keep_results(tmp_path: Path) -> None:
    """Whatever stores a result removes those of former checks, tables and histories, and of former tools."""
    pipeline, now_s = bank(tmp_path), time.time()
    history = history_name("accounts")
    made = {
        ("exactly_once", "bank__cdc/change_log"),
        ("keys_unique", "bank__cdc/cut"),
        ("keys_unique", "bank/accounts"),
        ("versions_sound", f"bank/{history}"),
        (FRESH, "bank/transfers"),
        (STREAM_IS_RUNNING, "bank__cdc/stream"),
    }
    former = {
        ("former_name", "bank__cdc/change_log"),  # renamed or no longer made
        ("transactions_arrive", "bank__cdc/change_log"),  # only of sources of another kind
        ("exactly_once", "bank__cdc/cut"),  # moved to another asset
        ("keys_unique", "bank/left"),  # a table that has left the pipeline
        ("versions_sound", "bank/transfers__history"),  # a history that is kept no more
        (FRESH, "bank/left"),
    }
    results = [LastResult(*place, False, False, now_s, "") for place in made | former]
    # Dagster has not run for some time.
    old = LastResult(FRESH, "bank/accounts", False, False, now_s - 8 * DAY_S, "")
    save_results(pipeline.lake, [*results, old])
    check = NAMED["nothing_lost"]
    store_results(pipeline, {check: PASSED}, NEW)
    assert places(pipeline) == made | {("nothing_lost", "bank__cdc/change_log")}


def test_a_check_of_all_tables_leaves_no_other_tables(tmp_path: Path) -> None:
    """A table in no cut has no result; a check of one table, or one that an error ended, leaves all."""
    pipeline = bank(tmp_path)
    of_tables = dict.fromkeys(("accounts", "transfers"), PASSED)
    check = NAMED["keys_unique"]
    store_results(pipeline, {check: replace(PASSED, tables=of_tables)})
    alone = replace(PASSED, tables={"accounts": PASSED})
    store_results(pipeline, {check: alone}, Scope(tables=frozenset({"accounts"})))
    assert {asset for _, asset in places(pipeline)} == {"bank__cdc/cut", "bank/accounts", "bank/transfers"}
    store_results(pipeline, {check: alone})
    assert {asset for _, asset in places(pipeline)} == {"bank__cdc/cut", "bank/accounts"}
    # The source does not answer: nothing is known about tables that was not known before.
    store_results(pipeline, {check: CheckResult(passed=False, summary="SourceError", facts={})})
    assert {asset for _, asset in places(pipeline)} == {"bank__cdc/cut", "bank/accounts"}


def test_only_incremental_checks_examine_a_part(tmp_path: Path) -> None:
    """A check that always examines everything gets everything, and replaces what it has found before."""
    scopes: list[Scope] = []

    def run(_pipeline: Pipeline, _spark: object, scope: Scope) -> CheckResult:
        scopes.append(scope)
        return CheckResult(passed=len(scopes) > 1, summary="", facts={})

    pipeline = bank(tmp_path)
    names = ("exactly_once", "watermark_monotone", "schema_changes")
    checks: list[Check] = [replace(NAMED[name], run=run) for name in names]
    failed = {}
    for check in checks:
        for scope in (EVERYTHING, NEW):
            store_results(pipeline, {check: check.examine(pipeline, NO_SPARK, scope)}, scope)
        stored = {result.name: not result.passed for result in load_results(pipeline.lake)}
        failed[check.name] = stored[check.name]
        assert scopes == [EVERYTHING, NEW if check.is_incremental else EVERYTHING]
        scopes.clear()
    # What only warns reports news, which end.
    assert failed == {"exactly_once": True, "watermark_monotone": False, "schema_changes": False}


def test_new_data_that_passes_hides_no_open_failure(tmp_path: Path) -> None:
    """Dagster shows what the whole examination found, until another one passes."""
    pipeline, check = bank(tmp_path), NAMED["exactly_once"]
    new = replace(PASSED, is_partial=True)
    assert with_open_failure(pipeline, check, new) == (check, new)
    store_results(pipeline, {check: replace(PASSED, passed=False, summary="2 repeated", is_partial=True)})
    # Nothing else failed, and the new examination repeats what failed.
    assert with_open_failure(pipeline, check, new) == (check, new)
    store_results(pipeline, {check: replace(PASSED, passed=False, summary="3 repeated")})
    shown, result = with_open_failure(pipeline, check, new)
    assert (shown.is_warning, shown.is_blocking, result.passed) == (False, False, False)
    assert result.summary.startswith("fine; but the check of the whole log at 20")
    assert result.summary.endswith(" failed: 3 repeated")
    store_results(pipeline, {check: PASSED})
    assert with_open_failure(pipeline, check, new) == (check, new)
