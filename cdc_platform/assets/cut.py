"""The cut: one published version of every table, at one source position."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import dagster as dg
from pydantic import Field

from cdc_platform import metadata
from cdc_platform.assets.check_results import check_log, evaluate, run_full_checks
from cdc_platform.assets.data_versions import DataVersions, cut_version
from cdc_platform.assets.events import LoggedStates, cycle_events, merge_event
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.assets.table_columns import own_schema
from cdc_platform.checks.freshness import (
    Freshness,
    freshness_results,
    is_report_due,
    results_of,
    save_all_fresh,
)
from cdc_platform.claims import WaitingRuns, keys_of_steps, refuse_cancelled
from cdc_platform.errors import CheckFailed
from cdc_platform.lake.state.read_progress import left_since
from cdc_platform.model.base.schemas import CUTS
from cdc_platform.model.base.stored_names import CUT
from cdc_platform.model.schema.table_options import history_name
from cdc_platform.partitions import sync_partitions
from cdc_platform.pipeline.cycle_loop import describe_retry, follow_source, pause
from cdc_platform.pipeline.histories.history_build import extend_histories
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.resources import PipelineRun, find_run
from cdc_platform.sensors import RunSettings
from cdc_platform.visible import visible_text

ASK_EVERY_S: Final = 1.0
"""Dagster's database is asked this often for runs that wait: it may hold many of others."""


class CutConfig(dg.Config):
    """Duration of a run."""

    follow_s: float = Field(
        default=0.0,
        description="Seconds for which the run continues with further cycles after the first one; it stops "
        "early if another run of the pipeline waits, for it or in Dagster's queue. 0 means one cycle only.",
    )


def build_cut(assets: PipelineAssets, runs: RunSettings) -> dg.AssetsDefinition:
    """Return the asset of a pipeline's published cut."""
    is_event_source = assets.capabilities.delivers_events

    @dg.asset(
        **assets.arguments(
            assets.cut,
            {"python", "iceberg"},
            **{
                metadata.COLUMN_SCHEMA: own_schema(CUT, CUTS),
                metadata.TABLE_NAME: f"lake.{assets.pipeline}__cdc.{CUT}",
            },
        ),
        description="The newest consistent point: a source position, and the snapshot of every table.\n\n"
        "Materialising it merges the tables that the run has not, and publishes all tables at that position. "
        "A failed upstream check blocks publication; a run without the upstream layers checks them first. "
        "With `follow_s` the run continues with whole cycles, and logs each of them as a materialisation of "
        "every asset whose content it changed; states of partitions are logged when they change. "
        "Every `check_every_s` seconds, checks examine the new part of the log; a failed check ends the run. "
        "The data version is the number of the cut.",
    )
    def cut(
        context: dg.AssetExecutionContext, config: CutConfig
    ) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.MaterializeResult[None]]:
        run = find_run(context, assets.run_key)
        yield from check_log(context, assets, run)
        yield from _merge_remaining(context, assets, run)
        new_cut = publish_cut(run.pipeline)
        since_micros = left_since(run.pipeline.lake, new_cut) if new_cut is not None else None
        facts = metadata.describe_cut(new_cut, since_micros, delivers_events=is_event_source)
        yield dg.MaterializeResult(metadata=facts, data_version=cut_version(new_cut))
        freshness = Freshness.after_cycle(new_cut, since_micros, delivers_events=is_event_source)
        evaluations = list(freshness_results(assets, runs, freshness))
        save_all_fresh(run.pipeline.lake, evaluations)
        yield from evaluations
        yield from run_full_checks(context, assets, run)
        if config.follow_s > 0:
            yield from _follow(context, assets, run, runs, config.follow_s)

    return cut


def _merge_remaining(
    context: dg.AssetExecutionContext, assets: PipelineAssets, run: PipelineRun
) -> Iterator[dg.AssetMaterialization]:
    """Merge the tables of which the run has no step, so that the cut includes them.

    A run may leave them out. Or they are new: the code location that planned the run may not know tables that
    this process knows.
    """
    step_keys = keys_of_steps(context.instance, context.run.run_id)
    remaining = [table for table in run.pipeline.tables if assets.table(table.name) not in step_keys]
    newcomers = [table.name for table in remaining if table.name not in assets.tables]
    if newcomers:
        context.log.warning(
            "The cut includes tables that are new at the source: %s. Reload the code location to see them as "
            "assets.",
            visible_text(", ".join(newcomers)),
        )
    with_history = [
        table
        for table in run.pipeline.tables
        if run.pipeline.options(table.name).history
        and assets.table(history_name(table.name)) not in step_keys
    ]
    merges = merge_tables(run.pipeline, run.spark, remaining) if remaining else ()
    merges += extend_histories(run.pipeline, run.spark, with_history) if with_history else ()
    for merge in merges:
        if merge.snapshot_id is not None:
            yield merge_event(DataVersions(assets, context.instance), run.pipeline, merge)


@dataclass
class _FreshnessReports:
    """Freshness that a run has reported: it is reported when a result changes, or else at an interval."""

    results: str = ""
    reported_at: float = field(default_factory=time.monotonic)

    def choose(self, evaluations: Sequence[dg.AssetCheckEvaluation]) -> Sequence[dg.AssetCheckEvaluation]:
        """Return the results of all tables if a report is due, or else none."""
        now_s = time.monotonic()
        if not is_report_due(evaluations, self.results, now_s - self.reported_at):
            return ()
        self.results, self.reported_at = results_of(evaluations), now_s
        return evaluations


def _follow(
    context: dg.AssetExecutionContext,
    assets: PipelineAssets,
    run: PipelineRun,
    runs: RunSettings,
    follow_s: float,
) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    wants_more = _until(context, assets, follow_s)
    pause(run.pipeline.settings.idle_interval_s, wants_more)
    evaluations: list[dg.AssetCheckEvaluation] = []
    outcomes = follow_source(
        run.pipeline,
        run.spark,
        wants_more,
        error_listener=lambda error: context.log.warning(describe_retry(error)),
        check_listener=lambda *result: evaluations.extend(evaluate(assets, run.pipeline, *result)),
    )
    versions, states = DataVersions(assets, context.instance), LoggedStates()
    reports = _FreshnessReports()
    try:
        for outcome in outcomes:
            yield from evaluations
            evaluations.clear()
            lineage = trace_lineage(run.pipeline)
            sync_partitions(context.instance, assets.pipeline, lineage)
            yield from cycle_events(versions, run.pipeline, outcome, lineage, states)
            freshness = Freshness.after_cycle(
                outcome.cut,
                outcome.read.left_since_micros,
                delivers_events=assets.capabilities.delivers_events,
            )
            yield from reports.choose(list(freshness_results(assets, runs, freshness)))
    except CheckFailed:
        yield from evaluations
        raise


def _until(context: dg.AssetExecutionContext, assets: PipelineAssets, follow_s: float) -> Callable[[], bool]:
    waiting_runs, end = WaitingRuns(context.instance, context.run.run_id, assets), time.monotonic() + follow_s
    ask_again, has_waiting = 0.0, False

    def wants_more() -> bool:
        nonlocal ask_again, has_waiting
        now = time.monotonic()
        if now >= ask_again:
            refuse_cancelled(context.instance, context.run.run_id)
            has_waiting = waiting_runs.exist()
            ask_again = now + ASK_EVERY_S
        return now < end and not has_waiting

    return wants_more
