"""The lineage layer: which partitions of the source there were, and how each followed from others."""

import dagster as dg

from cdc_platform import metadata
from cdc_platform.assets.data_versions import FOLLOWED
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.partitions import add_live_partitions
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.resources import find_run


def build_partition_lineage(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Return the asset of a pipeline's partition lineage."""

    @dg.asset(
        **assets.arguments(
            assets.lineage,
            {"python", "iceberg"},
            **assets.own_columns(assets.lineage),
        ),
        description="Every partition of the source with its parents, its state and its position.\n\n"
        "It is derived from the committed windows alone, so materialising it again changes nothing.",
    )
    def partition_lineage(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        lineage = trace_lineage(find_run(context, assets.run_key).pipeline)
        add_live_partitions(context.instance, assets.pipeline, lineage)
        return dg.MaterializeResult(metadata=metadata.describe_lineage(lineage), data_version=FOLLOWED)

    return partition_lineage
