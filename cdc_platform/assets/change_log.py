"""The log layer: every change of the source once, in transaction order."""

import dagster as dg

from cdc_platform import metadata
from cdc_platform.assets.data_versions import FOLLOWED
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.lake.commits.commits import count_rows, head
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.resources import find_run


def build_change_log(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Return the asset of a pipeline's change log."""

    @dg.asset(
        **assets.arguments(
            assets.log,
            {"pyspark", "iceberg"},
            **assets.own_columns(assets.log),
            **{metadata.COLUMN_LINEAGE: metadata.log_lineage(assets.raw)},
        ),
        description="Every change of the source exactly once, in one order; where the source reports its "
        "transactions, whole ones only.\n\n"
        "It reaches to the watermark: what any partition has yet to deliver is not in it.",
    )
    def change_log(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        run = find_run(context, assets.run_key)
        order = order_changes(run.pipeline, run.spark)
        rows = count_rows(head(run.pipeline.lake.system_table(LOG)))
        return dg.MaterializeResult(metadata=metadata.describe_order(order, rows), data_version=FOLLOWED)

    return change_log
