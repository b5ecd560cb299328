"""Materialisations that a run logs for each whole cycle after its first one."""

from collections.abc import Iterator
from typing import Final

import dagster as dg

from cdc_platform import metadata
from cdc_platform.assets.data_versions import DataVersions, cut_version, table_version
from cdc_platform.assets.tables import count_merged_rows
from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.lake.commits.commits import count_rows, head
from cdc_platform.model.base.turns import choose_by_turns
from cdc_platform.model.stream.lineage import Lineage
from cdc_platform.pipeline.cycle import CycleOutcome
from cdc_platform.pipeline.merging.build import MergeOutcome
from cdc_platform.pipeline.opened.pipeline import Pipeline

MOST_PARTITIONS: Final = 200
"""Most partitions with a materialisation per cycle; if there are more, they take turns."""


def cycle_events(
    versions: DataVersions, pipeline: Pipeline, outcome: CycleOutcome, lineage: Lineage
) -> Iterator[dg.AssetMaterialization]:
    """Yield one materialisation for each asset, and for each partition, that a cycle advanced."""
    if not outcome.read.committed:
        return
    assets = versions.assets
    yield from _raw_events(versions, outcome, lineage)
    yield versions.materialise(assets.lineage, metadata.describe_lineage(lineage))
    rows = count_rows(head(pipeline.lake.system_table(LOG)))
    yield versions.materialise(assets.log, metadata.describe_order(outcome.order, rows))
    if outcome.copy.copies:
        yield versions.materialise(assets.copies, metadata.describe_copies(outcome.copy))
    for merge in outcome.merges:
        if merge.snapshot_id is not None:
            yield merge_event(versions, pipeline, merge)
    described = metadata.describe_cut(outcome.cut, assets.capabilities)
    seconds = metadata.describe_seconds(outcome.seconds)
    yield versions.materialise(assets.cut, {**described, **seconds}, cut_version(outcome.cut))
    yield versions.materialise(assets.maintenance, metadata.describe_maintenance(outcome.maintenance))


def merge_event(versions: DataVersions, pipeline: Pipeline, merge: MergeOutcome) -> dg.AssetMaterialization:
    """Return the materialisation of a table or history that caught up with the log."""
    rows = count_merged_rows(pipeline, merge.table)
    is_history = pipeline.lake_tables[merge.table] != merge.table
    describe = metadata.describe_history if is_history else metadata.describe_merge
    described = describe(merge, pipeline.stored(merge.table), rows, versions.assets.log)
    key = versions.assets.table(merge.table)
    return versions.materialise(key, described, table_version(pipeline, merge))


def _raw_events(
    versions: DataVersions, outcome: CycleOutcome, lineage: Lineage
) -> Iterator[dg.AssetMaterialization]:
    keys = {partition.token: partition.key for partition in lineage.partitions.values()}
    for report in choose_by_turns(outcome.read.windows, MOST_PARTITIONS, outcome.cycle):
        own = metadata.describe_window(report, outcome.read.clock_micros)
        yield versions.materialise(versions.assets.raw, own, partition=keys.get(report.token))
