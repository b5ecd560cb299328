"""The platform's invariants as asset checks; the severity of a check decides whether it blocks."""

from collections.abc import Iterator

import dagster as dg
from dagster import AssetCheckExecutionContext, AssetCheckResult

from cdc_platform.assets.check_results import as_result, check_key, evaluate, step_name, table_check_keys
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.claims import FULL_CHECKS_TAG
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.pipeline.checks.check_result import EVERYTHING, Check, Scope, checking
from cdc_platform.pipeline.checks.invariants import checks_of
from cdc_platform.pipeline.checks.running_checks import passed_before
from cdc_platform.pipeline.checks.stored_results import store_results
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.resources import find_run


def build_checks(assets: PipelineAssets) -> list[dg.AssetChecksDefinition]:
    """Return the checks of a pipeline; a blocking one that fails stops everything downstream, and the run."""
    return [
        _build_check(assets, check)
        for check in checks_of(assets.capabilities, fail_on_quarantine=assets.fail_on_quarantine)
    ]


def _build_check(assets: PipelineAssets, check: Check) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=step_name(assets, check),
        specs=list(_specs(assets, check)),
        can_subset=True,
        required_resource_keys={assets.run_key},
    )
    def invariant(context: AssetCheckExecutionContext) -> Iterator[AssetCheckResult]:
        run = find_run(context, assets.run_key)
        mark = read_mark(run.pipeline.lake.system_table(LOG))
        with checking(run.pipeline, run.spark, [check]):
            scope = _scope(context, run.pipeline, assets, check)
            result = check.examine(run.pipeline, run.spark, scope)
        store_results(run.pipeline, {check: result}, scope)
        for evaluation in evaluate(assets, run.pipeline, check, result, mark.cycle):
            if evaluation.asset_check_key not in context.selected_asset_check_keys:
                continue
            # An error would stop the run, even that of an older examination.
            is_old = check.is_blocking and result.passed and not evaluation.passed
            yield as_result(evaluation, dg.AssetCheckSeverity.WARN if is_old else None)

    return invariant


def _specs(assets: PipelineAssets, check: Check) -> Iterator[dg.AssetCheckSpec]:
    key = check_key(assets, check)
    yield dg.AssetCheckSpec(
        key.name, asset=key.asset_key, description=check.description, blocking=check.is_blocking
    )
    for table_key in table_check_keys(assets, check).values():
        # Not blocking: tables are examined after publication, when nothing of the run is left to block.
        yield dg.AssetCheckSpec(
            table_key.name, asset=table_key.asset_key, description=check.table_description
        )


def _scope(
    context: AssetCheckExecutionContext, pipeline: Pipeline, assets: PipelineAssets, check: Check
) -> Scope:
    """Return the tables that are asked for, or the part of the log that earlier rounds may not have passed.

    That is everything in a run with full checks, or when the check is asked for alone.
    """
    key = check_key(assets, check)
    if key not in context.selected_asset_check_keys:
        keys = table_check_keys(assets, check).items()
        names = (name for name, table_key in keys if table_key in context.selected_asset_check_keys)
        return Scope(tables=frozenset(names))
    every_s = pipeline.settings.check_every_s
    is_full = not context.run.asset_selection or context.run.tags.get(FULL_CHECKS_TAG) == "true"
    return EVERYTHING if is_full or every_s is None else passed_before(pipeline, every_s)
