"""The initial copies: rows that the tables hold before the stream tells of them."""

from typing import Final

import dagster as dg

from cdc_platform import metadata
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.model.schemas import COPIES
from cdc_platform.pipeline.copy import copy_tables
from cdc_platform.resources import find_run

CHECK: Final = "copies_go_on"


def build_copies(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Return the asset of a pipeline's initial copies."""

    @dg.asset(
        **assets.arguments(
            assets.copies,
            "copies",
            {"spanner", "pyspark", "iceberg"},
            **{metadata.COLUMN_SCHEMA: metadata.arrow_schema(COPIES)},
        ),
        check_specs=[
            dg.AssetCheckSpec(
                CHECK,
                asset=assets.copies,
                description="Every copy that is going on could be gone on with. If not, its table waits, "
                "and the others go on.",
            )
        ],
        description="How the rows that a table holds already are copied: its moment, and its pieces.\n\n"
        "Materialising it copies for as long as `copy_s` says. A table is in no cut until its copy is "
        "complete; then the change log takes over right after the copy's moment. What was interrupted goes "
        "on with the pieces that are missing.",
    )
    def copies(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        run = find_run(context, assets.run_key)
        outcome = copy_tables(run.pipeline, run.spark)
        for told in (*outcome.notes, *([str(outcome.failure)] if outcome.failure else [])):
            context.log.warning(told)
        described = metadata.describe_copies(outcome)
        verdict = dg.AssetCheckResult(passed=outcome.failure is None, check_name=CHECK)
        return dg.MaterializeResult(metadata=described, check_results=[verdict])

    return copies
