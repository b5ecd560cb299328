"""Assets of the platform's own tables (lineage, change log, initial copies), and of maintenance."""

import dagster as dg
from pydantic import Field

from cdc_platform import metadata
from cdc_platform.assets.data_versions import FOLLOWED
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.assets.table_columns import log_lineage
from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.lake.commits.commits import count_rows, head
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.partitions import add_live_partitions
from cdc_platform.pipeline.copying.copy import copy_tables
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.resources import find_run
from cdc_platform.visible import visible_text


def build_partition_lineage(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Return the asset of a pipeline's partition lineage."""

    @dg.asset(
        **assets.arguments(
            assets.lineage,
            {"python", "iceberg"},
            **assets.own_columns(assets.lineage),
        ),
        description="Every partition of the source with its parents, its state and its position.\n\n"
        "It is derived only from committed windows, so materialising it again changes nothing.",
    )
    def partition_lineage(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        lineage = trace_lineage(find_run(context, assets.run_key).pipeline)
        add_live_partitions(context.instance, assets.pipeline, lineage)
        return dg.MaterializeResult(metadata=metadata.describe_lineage(lineage), data_version=FOLLOWED)

    return partition_lineage


def build_change_log(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Return the asset of a pipeline's change log."""

    @dg.asset(
        **assets.arguments(
            assets.log,
            {"pyspark", "iceberg"},
            **assets.own_columns(assets.log),
            **{metadata.COLUMN_LINEAGE: log_lineage(assets.raw)},
        ),
        description="Every change of the source exactly once, in one order. If the source reports its "
        "transactions, the log contains whole transactions only.\n\n"
        "It ends at the watermark: it contains no changes after what every partition has delivered.",
    )
    def change_log(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        run = find_run(context, assets.run_key)
        order = order_changes(run.pipeline, run.spark)
        rows = count_rows(head(run.pipeline.lake.system_table(LOG)))
        return dg.MaterializeResult(metadata=metadata.describe_order(order, rows), data_version=FOLLOWED)

    return change_log


def build_copies(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Return the asset of a pipeline's initial copies."""

    @dg.asset(
        **assets.arguments(
            assets.copies,
            {"pyspark", "iceberg"},
            **assets.own_columns(assets.copies),
        ),
        description="Initial copies of the existing rows of tables: the moment and the chunks of each.\n\n"
        "Materialising it copies for at most `copy_s` seconds. A table is in no cut until its copy is "
        "complete; then the change log takes over right after the copy's moment. An interrupted copy "
        "continues with the missing chunks. If a copy cannot continue, the run's log and the metadata here "
        "report it, and the other tables continue.",
    )
    def copies(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        run = find_run(context, assets.run_key)
        outcome = copy_tables(run.pipeline, run.spark)
        for note in outcome.notes:
            context.log.warning(visible_text(note))
        if outcome.failure is not None:
            if newest_cut(run.pipeline.lake) is None:
                raise outcome.failure
            context.log.error("%s: %s", type(outcome.failure).__name__, visible_text(str(outcome.failure)))
        return dg.MaterializeResult(metadata=metadata.describe_copies(outcome), data_version=FOLLOWED)

    return copies


class MaintenanceConfig(dg.Config):
    """Scope of a maintenance run."""

    force: bool = Field(default=False, description="Compact and expire everything now, due or not.")


def build_maintenance(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Return the asset of a lake's maintenance."""

    @dg.asset(
        **assets.arguments(assets.maintenance, {"pyspark", "iceberg"}, **{metadata.TABLE_NAME: None}),
        description="Compaction of small files and expiry of old snapshots, where they are due, "
        "or when you materialise this asset on its own.\n\n"
        "It changes no content, and every cut stays readable for as long as the settings state.",
    )
    def maintenance(
        context: dg.AssetExecutionContext, config: MaintenanceConfig
    ) -> dg.MaterializeResult[None]:
        run = find_run(context, assets.run_key)
        is_asked_alone = context.run.asset_selection == {assets.maintenance}
        outcome = maintain_lake(run.pipeline, run.spark, thorough=config.force or is_asked_alone)
        return dg.MaterializeResult(metadata=metadata.describe_maintenance(outcome), data_version=FOLLOWED)

    return maintenance
