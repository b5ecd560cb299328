"""Maintenance: compaction and expiry, which change no content."""

import dagster as dg
from pydantic import Field

from cdc_platform import metadata
from cdc_platform.assets.data_versions import FOLLOWED
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform.resources import find_run


class MaintenanceConfig(dg.Config):
    """Scope of a maintenance run."""

    force: bool = Field(default=False, description="Compact and expire everything now, due or not.")


def build_maintenance(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Return the asset of a lake's maintenance."""

    @dg.asset(
        **assets.arguments(assets.maintenance, {"pyspark", "iceberg"}, **{metadata.TABLE_NAME: None}),
        description="Compaction of small files and expiry of old snapshots, where they are due, "
        "or when this asset is materialised alone.\n\n"
        "It changes no content, and every cut stays readable for as long as the settings promise.",
    )
    def maintenance(
        context: dg.AssetExecutionContext, config: MaintenanceConfig
    ) -> dg.MaterializeResult[None]:
        run = find_run(context, assets.run_key)
        is_asked_alone = context.run.asset_selection == {assets.maintenance}
        outcome = maintain_lake(run.pipeline, run.spark, thorough=config.force or is_asked_alone)
        return dg.MaterializeResult(metadata=metadata.describe_maintenance(outcome), data_version=FOLLOWED)

    return maintenance
