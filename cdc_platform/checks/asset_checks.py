"""The platform's invariants as asset checks; the severity of a check decides whether it blocks."""

from collections.abc import Iterator
from typing import Final

import dagster as dg
from dagster import AssetCheckExecutionContext, AssetCheckResult

from cdc_platform.assets.check_results import THROUGH_CYCLE, as_result, check_key, evaluate, table_check_keys
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.claims import FULL_CHECKS_TAG
from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.lake.commits.commits import (
    CYCLE,
    Mark,
    ancestors_of,
    head,
    number_of,
    position_of,
    read_mark,
)
from cdc_platform.lake.state.cuts import cuts_since
from cdc_platform.pipeline.checks.check_result import EVERYTHING, Check, Scope, checking, store_results
from cdc_platform.pipeline.checks.invariants import checks_of
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.resources import find_run

MAX_EVALUATIONS: Final = 20
"""Number of evaluations among which the last one that passed is looked for."""


def build_checks(assets: PipelineAssets) -> list[dg.AssetChecksDefinition]:
    """Return the checks of a pipeline; a blocking one that fails stops everything downstream, and the run."""
    return [
        _build_check(assets, check)
        for check in checks_of(assets.capabilities, fail_on_quarantine=assets.fail_on_quarantine)
    ]


def _build_check(assets: PipelineAssets, check: Check) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=f"{assets.pipeline}__{check.name}",
        specs=list(_specs(assets, check)),
        can_subset=True,
        required_resource_keys={assets.run_key},
    )
    def invariant(context: AssetCheckExecutionContext) -> Iterator[AssetCheckResult]:
        run = find_run(context, assets.run_key)
        mark = read_mark(run.pipeline.lake.system_table(LOG))
        with checking(run.pipeline, run.spark):
            scope = _scope(context, run.pipeline, assets, check)
            result = check.run(run.pipeline, run.spark, scope)
        store_results(run.pipeline.lake, {check: result}, scope)
        for evaluation in evaluate(assets, check, result, mark.cycle):
            if evaluation.asset_check_key in context.selected_asset_check_keys:
                yield as_result(evaluation)

    return invariant


def _specs(assets: PipelineAssets, check: Check) -> Iterator[dg.AssetCheckSpec]:
    key = check_key(assets, check)
    yield dg.AssetCheckSpec(
        key.name, asset=key.asset_key, description=check.description, blocking=check.is_blocking
    )
    for table_key in table_check_keys(assets, check).values():
        # Tables are looked at once they are published, so that nothing of the run is left to block.
        yield dg.AssetCheckSpec(
            table_key.name, asset=table_key.asset_key, description=check.table_description
        )


def _scope(
    context: AssetCheckExecutionContext, pipeline: Pipeline, assets: PipelineAssets, check: Check
) -> Scope:
    """Return the tables that are asked for, or what the check has not yet seen of the log.

    That is everything in a run with full checks, or when the check is asked for alone.
    """
    key = check_key(assets, check)
    if key not in context.selected_asset_check_keys:
        chosen = table_check_keys(assets, check).items()
        names = (name for name, table_key in chosen if table_key in context.selected_asset_check_keys)
        return Scope(tables=frozenset(names))
    if not context.run.asset_selection or context.run.tags.get(FULL_CHECKS_TAG) == "true":
        return EVERYTHING
    records = context.instance.event_log_storage.get_asset_check_execution_history(key, limit=MAX_EVALUATIONS)
    # A warning is reported once; a failed check runs again on the same part.
    cycles = (_seen_cycle(record, must_pass=not check.is_warning) for record in records)
    cycle = next((number for number in cycles if number is not None), 0)
    mark = _mark_of(pipeline, cycle)
    return Scope(mark.cycle, mark.position_micros) if mark is not None else EVERYTHING


def _seen_cycle(record: object, *, must_pass: bool) -> int | None:
    event = getattr(record, "event", None)
    dagster_event = event.dagster_event if event is not None else None
    # A check that was planned and never made has a record too.
    if dagster_event is None or dagster_event.event_type is not dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        return None
    evaluation = dagster_event.asset_check_evaluation_data
    cycle = evaluation.metadata.get(THROUGH_CYCLE)
    is_seen = evaluation.passed or not must_pass
    return int(cycle.value) if is_seen and cycle is not None else None


def _mark_of(pipeline: Pipeline, cycle: int) -> Mark | None:
    """Return the position that the log had after a cycle, None when nothing shows it any more."""
    log = pipeline.lake.system_table(LOG)
    for snapshot in ancestors_of(log, head(log)):
        if number_of(snapshot, CYCLE) == cycle:
            return Mark(cycle, position_of(snapshot) or 0, 0)
    # Cuts outlive the snapshots of the log.
    cut = next((cut for cut in cuts_since(pipeline.lake, cycle) if cut.cycle == cycle), None)
    return Mark(cycle, cut.position_micros, 0) if cut is not None else None
