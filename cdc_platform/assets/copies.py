"""The initial copies: rows that the tables hold before the stream reports them."""

import dagster as dg

from cdc_platform import metadata
from cdc_platform.assets.data_versions import FOLLOWED
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.pipeline.copying.copy import copy_tables
from cdc_platform.resources import find_run
from cdc_platform.visible import visible_text


def build_copies(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Return the asset of a pipeline's initial copies."""

    @dg.asset(
        **assets.arguments(
            assets.copies,
            {"pyspark", "iceberg"},
            **assets.own_columns(assets.copies),
        ),
        description="How the rows that a table holds already are copied: its moment, and its chunks.\n\n"
        "Materialising it copies for as long as `copy_s` says. A table is in no cut until its copy is "
        "complete; then the change log takes over right after the copy's moment. What was interrupted goes "
        "on with the chunks that are missing. A copy that cannot go on says so in the run's log and in the "
        "metadata here, and the other tables go on.",
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
