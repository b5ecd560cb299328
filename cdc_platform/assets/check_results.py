"""Checks of a pipeline in Dagster: their keys and their evaluations."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import dagster as dg

from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.claims import FULL_CHECKS_TAG
from cdc_platform.errors import CheckFailed
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.last_results import LastResult
from cdc_platform.metadata import describe_facts
from cdc_platform.model.base.names import CHECKED_AT, FRESH
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.schema.table_options import history_name
from cdc_platform.pipeline.checks.check_result import EVERYTHING, Check, CheckResult, checking, raise_failures
from cdc_platform.pipeline.checks.invariants import checks_of
from cdc_platform.pipeline.checks.running_checks import CheckRunner
from cdc_platform.pipeline.checks.stored_results import store_results, with_open_failure
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.resources import PipelineRun
from cdc_platform.visible import visible_text

THROUGH_CYCLE: Final = "Checked through cycle"


def check_key(assets: PipelineAssets, check: Check) -> dg.AssetCheckKey:
    """Return the key of a check on the asset of its layer.

    Raises:
        LookupError: the check names no layer.
    """
    layers = {key.path[-1]: key for key in (assets.raw, assets.lineage, assets.log, assets.cut)}
    if check.asset not in layers:
        raise LookupError(f"The check `{check.name}` is of `{check.asset}`, not one of: {', '.join(layers)}")
    return dg.AssetCheckKey(layers[check.asset], check.name)


def step_name(assets: PipelineAssets, check: Check) -> str:
    """Return the name of the step that runs a check, where runs have it as a step."""
    return f"{assets.pipeline}__{check.name}"


def table_check_keys(assets: PipelineAssets, check: Check) -> Mapping[str, dg.AssetCheckKey]:
    """Return the keys of a check on each table or history, by their names in a cut."""
    if not check.table_name:
        return {}
    names = map(history_name, assets.histories) if check.reads_histories else assets.tables
    return {name: dg.AssetCheckKey(assets.table(name), check.table_name) for name in names}


def evaluate(
    assets: PipelineAssets, pipeline: Pipeline, check: Check, result: CheckResult, cycle: int
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the evaluations of a check of the log through a cycle: one in total and one per checked table."""
    check, result = with_open_failure(pipeline, check, result)
    yield describe_check_result(check_key(assets, check), check, result, cycle, blocking=check.is_blocking)
    for name, key in table_check_keys(assets, check).items():
        if name in result.tables:
            yield describe_check_result(key, check, result.tables[name], cycle)


def describe_check_result(
    key: dg.AssetCheckKey, check: Check, result: CheckResult, cycle: int, *, blocking: bool = False
) -> dg.AssetCheckEvaluation:
    """Return a result as Dagster's evaluation; a table's result never blocks, because the total one does."""
    return dg.AssetCheckEvaluation(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=result.passed,
        severity=dg.AssetCheckSeverity.WARN if check.is_warning else dg.AssetCheckSeverity.ERROR,
        description=visible_text(result.summary),
        # The UI plots numbers, and this one only grows.
        metadata={**describe_facts(result.facts), THROUGH_CYCLE: str(cycle)},
        blocking=blocking,
    )


def as_result(
    evaluation: dg.AssetCheckEvaluation, severity: dg.AssetCheckSeverity | None = None
) -> dg.AssetCheckResult:
    """Return an evaluation as the result of a check step, with another severity if given."""
    return dg.AssetCheckResult(
        asset_key=evaluation.asset_key,
        check_name=evaluation.check_name,
        passed=evaluation.passed,
        severity=severity or evaluation.severity,
        description=evaluation.description,
        metadata=evaluation.metadata,
    )


def last_results(evaluations: Iterable[dg.AssetCheckEvaluation]) -> list[LastResult]:
    """Return evaluations that Dagster has just made as results that the lake stores."""
    return [
        LastResult(
            evaluation.check_name,
            evaluation.asset_key.to_user_string(),
            evaluation.passed,
            evaluation.severity is dg.AssetCheckSeverity.WARN,
            time.time(),
            evaluation.description or "",
        )
        for evaluation in evaluations
    ]


def check_log(
    context: dg.AssetExecutionContext, assets: PipelineAssets, run: PipelineRun
) -> Iterator[dg.AssetCheckEvaluation]:
    """Run the checks of every cycle before publication, unless they are steps of the run.

    A run without the log and its checks, or one that repeats steps of another run, thus cannot publish data
    that an earlier run refused to publish.

    Raises:
        CheckFailed: a blocking check has failed.
    """
    checks = checks_of(run.pipeline.capabilities)
    due_checks = [check for check in checks if check.every_cycle and check.is_blocking]
    if all(_is_step(context, assets, check) for check in due_checks):
        return
    evaluations: list[dg.AssetCheckEvaluation] = []
    try:
        CheckRunner(
            run.pipeline,
            run.spark,
            lambda *results: evaluations.extend(evaluate(assets, run.pipeline, *results)),
            every_s=run.pipeline.settings.check_every_s or 0.0,
        ).run_due()
    except CheckFailed:
        yield from evaluations
        raise
    yield from evaluations


def run_full_checks(
    context: dg.AssetExecutionContext, assets: PipelineAssets, run: PipelineRun
) -> Iterator[dg.AssetCheckEvaluation]:
    """Run the checks of whole tables at the newest cut if the run requests them and they are not steps of it.

    Dagster shows a check step as running from the start of its run, which hides its last result.

    Raises:
        CheckFailed: a blocking check has failed, after all checks ran.
    """
    if context.run.tags.get(FULL_CHECKS_TAG) != "true":
        return
    cycle = read_mark(run.pipeline.lake.system_table(LOG)).cycle
    results: dict[Check, CheckResult] = {}
    checks = checks_of(run.pipeline.capabilities)
    due_checks = [check for check in checks if not (check.every_cycle or _is_step(context, assets, check))]
    try:
        with checking(run.pipeline, run.spark, due_checks, total=len(due_checks)) as step:
            for check in due_checks:
                with run.progress.step(f"check {check.name}"):
                    results[check] = check.examine(run.pipeline, run.spark, EVERYTHING)
                step.advance()
                yield from evaluate(assets, run.pipeline, check, results[check], cycle)
    finally:
        # An error in one check must not hide what others have found.
        store_results(run.pipeline, results)
    raise_failures(results)


def carry_over(
    context: dg.AssetExecutionContext, assets: PipelineAssets
) -> Iterator[dg.AssetCheckEvaluation]:
    """Repeat the last results at the start of a run, which has no newer ones yet.

    Dagster hides the results of earlier runs once an asset is materialised again.
    """
    storage = context.instance.event_log_storage
    for summary in storage.get_asset_check_summary_records(all_check_keys(assets)).values():
        record = summary.last_completed_check_execution_record
        evaluation = record.evaluation if record is not None else None
        # The record of a check that was planned and never ran has no evaluation.
        if record is None or not isinstance(evaluation, dg.AssetCheckEvaluation):
            continue
        checked_at = {CHECKED_AT: dg.MetadataValue.timestamp(record.create_timestamp)}
        yield dg.AssetCheckEvaluation(
            asset_key=evaluation.asset_key,
            check_name=evaluation.check_name,
            passed=evaluation.passed,
            severity=evaluation.severity,
            description=evaluation.description,
            metadata={**checked_at, **evaluation.metadata},
            # A check that failed before blocks by failing again.
            blocking=False,
        )


def all_check_keys(assets: PipelineAssets) -> list[dg.AssetCheckKey]:
    """Return the keys of all checks of a pipeline and its tables."""
    keys = [dg.AssetCheckKey(key, FRESH) for key in assets.all_tables]
    for check in checks_of(assets.capabilities):
        keys += [check_key(assets, check), *table_check_keys(assets, check).values()]
    return keys


def _is_step(context: dg.AssetExecutionContext, assets: PipelineAssets, check: Check) -> bool:
    # A run that repeats chosen steps of another one has all assets and checks of that one.
    step_keys = context.run.step_keys_to_execute
    if step_keys is not None and step_name(assets, check) not in step_keys:
        return False
    # The layer has checks as well as assets, although its type names assets only.
    return context.job_def.asset_layer.has(check_key(assets, check))  # type: ignore[arg-type]
