"""Check results in Dagster: the names of a pipeline's checks, and their evaluations."""

from collections.abc import Iterator
from typing import Final

import dagster as dg

from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.errors import CheckFailed
from cdc_platform.metadata import visible
from cdc_platform.pipeline.checks.check_result import Check, CheckResult
from cdc_platform.pipeline.checks.invariants import checks_of
from cdc_platform.pipeline.checks.running_checks import Guard
from cdc_platform.resources import PipelineRun
from cdc_platform.visible import visible_text

THROUGH_CYCLE: Final = "checked_through_cycle"


def check_key(assets: PipelineAssets, check: Check) -> dg.AssetCheckKey:
    """Return the key of a check, upon the asset of its layer.

    Raises:
        LookupError: the check names no layer.
    """
    layers = {key.path[-1]: key for key in (assets.raw, assets.lineage, assets.log, assets.cut)}
    if check.asset not in layers:
        raise LookupError(f"The check `{check.name}` is of `{check.asset}`, not one of: {', '.join(layers)}")
    return dg.AssetCheckKey(layers[check.asset], check.name)


def describe_check_result(
    assets: PipelineAssets, check: Check, result: CheckResult, cycle: int
) -> dg.AssetCheckEvaluation:
    """Return what a check found in the log through a cycle, as Dagster keeps it."""
    key = check_key(assets, check)
    return dg.AssetCheckEvaluation(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=result.passed,
        severity=dg.AssetCheckSeverity.WARN if check.is_warning else dg.AssetCheckSeverity.ERROR,
        description=visible_text(result.summary),
        metadata=visible({**result.facts, THROUGH_CYCLE: cycle}),
        blocking=check.is_blocking,
    )


def check_log(
    context: dg.AssetExecutionContext, assets: PipelineAssets, run: PipelineRun
) -> Iterator[dg.AssetCheckEvaluation]:
    """Run the checks of every cycle before something is published, unless the run makes them as its own.

    What an earlier run refused to publish is not published by one that leaves the log and its checks out.

    Raises:
        CheckFailed: one that blocks has failed.
    """
    layer = context.job_def.asset_layer
    due = [check for check in checks_of(run.pipeline.capabilities) if check.every_cycle and check.is_blocking]
    # It has checks as well as assets, though it says assets only.
    if all(layer.has(check_key(assets, check)) for check in due):  # type: ignore[arg-type]
        return
    evaluations: list[dg.AssetCheckEvaluation] = []
    try:
        Guard(
            run.pipeline,
            run.spark,
            lambda *results: evaluations.append(describe_check_result(assets, *results)),
        ).run_due()
    except CheckFailed:
        yield from evaluations
        raise
    yield from evaluations
