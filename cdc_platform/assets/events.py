"""A whole cycle as materialisations: what a run logs for each cycle after its first one."""

from collections.abc import Iterator

import dagster as dg

from cdc_platform import metadata
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.assets.tables import count_merged_rows
from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.lake.commits.commits import count_rows, head
from cdc_platform.model.stream.lineage import Lineage
from cdc_platform.pipeline.cycle import CycleOutcome
from cdc_platform.pipeline.merging.build import MergeOutcome
from cdc_platform.pipeline.opened.pipeline import Pipeline


def cycle_events(
    assets: PipelineAssets, pipeline: Pipeline, outcome: CycleOutcome, lineage: Lineage
) -> Iterator[dg.AssetMaterialization]:
    """Yield one materialisation for each asset, and for each partition, that a cycle has changed."""
    if not outcome.read.committed:
        return
    yield from _raw_events(assets, outcome, lineage)
    yield dg.AssetMaterialization(assets.lineage, metadata=metadata.describe_lineage(lineage))
    if outcome.order.changes:
        rows = count_rows(head(pipeline.lake.system_table(LOG)))
        described = metadata.describe_order(outcome.order, outcome.read.clock_micros, rows)
        yield dg.AssetMaterialization(assets.log, metadata=described)
    if outcome.copy.copies:
        yield dg.AssetMaterialization(assets.copies, metadata=metadata.describe_copies(outcome.copy))
    for merge in outcome.merges:
        if merge.snapshot_id is not None:
            yield merge_event(assets, pipeline, merge)
    described = metadata.describe_cut(outcome.cut, outcome.read.clock_micros)
    seconds = {f"{step}_s": round(duration_s, 3) for step, duration_s in outcome.seconds.items()}
    yield dg.AssetMaterialization(assets.cut, metadata={**described, **seconds})


def merge_event(assets: PipelineAssets, pipeline: Pipeline, merge: MergeOutcome) -> dg.AssetMaterialization:
    """Return the materialisation of a table or history that was brought up to the log."""
    rows = count_merged_rows(pipeline, merge.table)
    is_history = pipeline.lake_tables[merge.table] != merge.table
    describe = metadata.describe_history if is_history else metadata.describe_merge
    described = describe(merge, pipeline.stored(merge.table), rows)
    return dg.AssetMaterialization(assets.table(merge.table), metadata=described)


def _raw_events(
    assets: PipelineAssets, outcome: CycleOutcome, lineage: Lineage
) -> Iterator[dg.AssetMaterialization]:
    keys = {partition.token: partition.key for partition in lineage.partitions.values()}
    described = metadata.describe_read(outcome.read, lineage)
    for report in outcome.read.windows:
        own = metadata.describe_window(report, outcome.read.clock_micros)
        yield dg.AssetMaterialization(
            assets.raw, partition=keys.get(report.token), metadata={**described, **own}
        )
