"""Dagster definitions of a pipeline, from its settings."""

import logging
import warnings
from collections.abc import Collection, Iterator
from dataclasses import replace

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster_shared.utils.warnings import BetaWarning

from cdc_platform.assets.cut import build_cut
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.assets.platform import (
    build_change_log,
    build_copies,
    build_maintenance,
    build_partition_lineage,
    build_raw_change_records,
)
from cdc_platform.assets.tables import build_table
from cdc_platform.assets.upstream import NO_UPSTREAM, Upstream, build_source
from cdc_platform.checks.asset_checks import build_checks
from cdc_platform.checks.freshness import build_freshness_check, build_freshness_sensor
from cdc_platform.claims import pipeline_tag
from cdc_platform.errors import CdcError
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.model.schema.lake_tables import LakeTable
from cdc_platform.model.schema.table_options import PLAIN
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.resources import run_resource
from cdc_platform.sensors import RunSelection, RunSettings, build_schedule, build_sensor

LOGGER = logging.getLogger(__name__)

DISCOVERY_DEADLINE_S = 5.0


def build_pipeline(
    settings: PipelineSettings, runs: RunSettings, upstream: Upstream = NO_UPSTREAM
) -> dg.Definitions:
    """Return the assets, checks, job, sensor and resources of one pipeline.

    Args:
        settings: settings of the pipeline.
        runs: how Dagster runs it.
        upstream: further assets of the source to show.
    """
    tables = find_tables(settings)
    histories = find_histories(settings, tables)
    assets = PipelineAssets(
        settings.name,
        tables,
        runs.owners,
        settings.copies_first,
        histories,
        settings.source.capabilities,
        upstream.keys,
        settings.fail_on_quarantine,
    )
    selection = RunSelection(assets, upstream.check_keys)
    has_freshness = runs.has_freshness and bool(assets.all_tables)
    job = _build_job(assets)
    return dg.Definitions(
        assets=[
            *upstream.assets,
            build_source(assets, settings.source.title, upstream.kinds),
            *_build_layers(assets),
            build_cut(assets, runs),
            build_maintenance(assets),
        ],
        asset_checks=[
            *upstream.checks,
            *build_checks(assets),
            *([build_freshness_check(assets, settings, runs)] if has_freshness else []),
        ],
        jobs=[job],
        sensors=[
            build_sensor(settings, runs, selection, job),
            *([build_freshness_sensor(assets, settings, runs)] if has_freshness else []),
        ],
        schedules=[build_schedule(selection, runs, runs.schedule, job)] if runs.schedule else [],
        resources={assets.run_key: run_resource(settings), **upstream.resources},
    )


def _build_layers(assets: PipelineAssets) -> Iterator[dg.AssetsDefinition]:
    """Yield the assets between the source and the cut."""
    yield _build_raw(assets)
    yield build_partition_lineage(assets)
    yield build_change_log(assets)
    if assets.copies_first:
        yield build_copies(assets)
    for name in assets.tables:
        yield build_table(assets, LakeTable(name))
    for name in assets.histories:
        yield build_table(assets, LakeTable(name, is_history=True))


def _build_job(assets: PipelineAssets) -> UnresolvedAssetJobDefinition:
    keys = assets.all_keys
    return dg.define_asset_job(
        f"{assets.pipeline}_sync",
        selection=dg.AssetSelection.assets(*keys) | dg.AssetSelection.checks_for_assets(*keys),
        executor_def=dg.in_process_executor,
        tags=pipeline_tag(assets.pipeline),
        description=f"One cycle of `{assets.pipeline}` through all layers, in one process.",
    )


def _build_raw(assets: PipelineAssets) -> dg.AssetsDefinition:
    with warnings.catch_warnings():
        # Dagster warns that reading several partitions in one run is beta.
        warnings.simplefilter("ignore", BetaWarning)
        return build_raw_change_records(assets)


def find_tables(settings: PipelineSettings) -> tuple[str, ...]:
    """Return the source tables of a pipeline: of the settings, else of the source, else of the lake.

    A code location has several pipelines: none of them may keep it from loading because a server is down.
    """
    if settings.tables is not None:
        return tuple(sorted(settings.tables))
    source = settings.source.with_deadline(DISCOVERY_DEADLINE_S)
    pipeline = open_pipeline(replace(settings, source=source))
    names: Collection[str] = ()
    try:
        # The lake knows tables that the source dropped, the source those that no cycle has read yet.
        names = {table.name for table in pipeline.source.list_tables()}
        with reaching(settings.lake):
            return tuple(pipeline.select_tables({*names, *(table.name for table in pipeline.tables)}))
    except CdcError as error:
        table_names = tuple(sorted({*names, *_known_tables(pipeline)}))
        LOGGER.warning(
            "Pipeline %s: not all its tables can be listed, so only the others are assets (%s). "
            "Reload the code location once they can, or name the tables in the setting `tables`. %s",
            settings.name,
            ", ".join(table_names) or "none",
            error,
        )
        return table_names
    finally:
        pipeline.source.close()


def find_histories(settings: PipelineSettings, tables: Collection[str]) -> tuple[str, ...]:
    """Return the tables of a pipeline with a history, without those whose history's place is taken."""
    places = {LakeTable(name).place for name in tables}
    names = (name for name in tables if settings.table_options.get(name, PLAIN).history)
    return tuple(name for name in names if LakeTable(name, is_history=True).place not in places)


def _known_tables(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the tables in the lake; none if it cannot be read, since other pipelines are loaded as well.

    They include those that no cycle has merged yet: a run of them may begin while the source is down.
    """
    try:
        with reaching(pipeline.settings.lake):
            pipeline.lake.require()
            logged_tables = pipeline.select_tables(pipeline.schema_history.tables)
            return (*pipeline.present_tables, *logged_tables)
    except CdcError:
        return ()
