"""What the checks of a pipeline are called in Dagster, and how their verdicts are kept there."""

from typing import Final

import dagster as dg

from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.pipeline.verdict import Check, Verdict

THROUGH_TICK: Final = "checked_through_tick"


def check_key(assets: PipelineAssets, check: Check) -> dg.AssetCheckKey:
    """Return the key of a check, upon the asset of its layer."""
    layers = (assets.raw, assets.lineage, assets.log, assets.cut)
    return dg.AssetCheckKey(next(key for key in layers if key.path[-1] == check.asset), check.name)


def describe_verdict(
    assets: PipelineAssets, check: Check, verdict: Verdict, tick: int
) -> dg.AssetCheckEvaluation:
    """Return what a check found in the log through a tick, as Dagster keeps it."""
    key = check_key(assets, check)
    return dg.AssetCheckEvaluation(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=verdict.passed,
        severity=dg.AssetCheckSeverity.WARN if check.is_warning else dg.AssetCheckSeverity.ERROR,
        description=verdict.summary,
        metadata={**verdict.facts, THROUGH_TICK: tick},
        blocking=not check.is_warning,
    )
