"""The histories layer: one asset for each source table that keeps its history."""

import dagster as dg

from cdc_platform import metadata
from cdc_platform.assets.data_versions import table_version
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.assets.tables import TableConfig, count_merged_rows
from cdc_platform.model.schema.table_options import history_name
from cdc_platform.pipeline.histories.history_build import extend_history
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.resources import find_run


def build_history(assets: PipelineAssets, source_table: str) -> dg.AssetsDefinition:
    """Return the asset of one table's history."""
    name = history_name(source_table)

    @dg.asset(
        **assets.arguments(assets.table(name), {"table", "iceberg"}, source_table=source_table),
        description=f"Every version of every row of the source table `{source_table}` up to the newest cut, "
        "with `valid_from`, `valid_to` (exclusive), `is_current` and the transaction that made it. "
        "Rows of an initial copy have none, and begin at the moment of the copy.\n\n"
        "Materialising it catches up with the change log, unseen by readers until the next cut is published. "
        "The run setting `rebuild` builds it again from the log, `at_cut` from an older cut on.",
    )
    def history(context: dg.AssetExecutionContext, config: TableConfig) -> dg.MaterializeResult[None]:
        run = find_run(context, assets.run_key)
        if config.rebuild:
            merge = rebuild_table(run.pipeline, run.spark, name, config.at_cut)
        else:
            merge = extend_history(run.pipeline, run.spark, source_table)
        rows = count_merged_rows(run.pipeline, name)
        described = metadata.describe_history(merge, run.pipeline.stored(name), rows, assets.log)
        return dg.MaterializeResult(metadata=described, data_version=table_version(run.pipeline, merge))

    return history
