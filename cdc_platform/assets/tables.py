"""The tables layer: one asset for each source table, and one for each history."""

from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from cdc_platform import metadata
from cdc_platform.assets.check_results import check_log
from cdc_platform.assets.data_versions import table_version
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.lake.commits.commits import BRANCH, count_rows, head
from cdc_platform.model.schema.lake_tables import LakeTable
from cdc_platform.pipeline.histories.history_build import extend_histories
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.schema.table_ddl import source_comments
from cdc_platform.resources import find_run


class TableConfig(dg.Config):
    """Launchpad options of one table."""

    rebuild: bool = Field(
        default=False,
        description="Rebuild the table from its initial copy, if it has one, and the change log.",
    )
    at_cut: int | None = Field(
        default=None,
        description="Rebuild the table from its state at this cut and the later part of the log.",
    )


def build_table(assets: PipelineAssets, table: LakeTable) -> dg.AssetsDefinition:
    """Return the asset of one table, or of one history."""
    catch_up = extend_histories if table.is_history else merge_tables

    @dg.asset(
        **assets.arguments(assets.table(table.name), {"table", "iceberg"}, source_table=table.source_table),
        description=f"{_describe(table)}\n\nMaterialising it catches up with the change log; readers see the "
        "result once the next cut is published. The run setting `rebuild` rebuilds it from the log, and "
        "`at_cut` from an older cut on.",
    )
    def table_asset(
        context: dg.AssetExecutionContext, config: TableConfig
    ) -> Iterator[dg.AssetCheckEvaluation | dg.MaterializeResult[None]]:
        run = find_run(context, assets.run_key)
        if config.rebuild or config.at_cut is not None:
            yield from check_log(context, assets, run)
            merge = rebuild_table(run.pipeline, run.spark, table.name, config.at_cut)
        else:
            (merge,) = catch_up(run.pipeline, run.spark, [run.pipeline.table(table.source_table)])
        facts = metadata.describe_merge(merge, find_stored(run.pipeline, table.name), assets.log)
        yield dg.MaterializeResult(metadata=facts, data_version=table_version(run.pipeline, merge))

    return table_asset


def _describe(table: LakeTable) -> str:
    if not table.is_history:
        return f"The source table `{table.source_table}` as it was at the newest cut."
    return (
        f"Every version of every row of the source table `{table.source_table}` up to the newest cut, with "
        "`valid_from`, `valid_to` (exclusive), `is_current` and the transaction that made it. Rows of an "
        "initial copy have no transaction, and begin at the moment of the copy."
    )


def find_stored(pipeline: Pipeline, name: str) -> metadata.StoredTable:
    """Return a table or history as it is after the cycle's merge, published or not."""
    stored_table = pipeline.lake.table(name)
    rows = count_rows(head(stored_table, BRANCH) or head(stored_table)) if stored_table is not None else None
    source_table = pipeline.lake_tables.get(name, name)
    comments = source_comments(pipeline, source_table)
    return metadata.StoredTable(pipeline.stored_schema(name), rows, comments, is_history=source_table != name)
