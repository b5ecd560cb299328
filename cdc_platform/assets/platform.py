"""Assets of the platform's own tables (raw records, lineage, log, copies), and of maintenance."""

from collections.abc import Collection, Iterator

import dagster as dg
from pydantic import Field

from cdc_platform import metadata
from cdc_platform.assets.check_results import carry_over
from cdc_platform.assets.data_versions import FOLLOWED, DataVersions
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.assets.table_columns import log_lineage
from cdc_platform.claims import FULL_CHECKS_TAG
from cdc_platform.lake.commits.commits import count_rows, head
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.stream.lineage import Lineage
from cdc_platform.partitions import change_stream_partitions, sync_partitions
from cdc_platform.pipeline.copying.copy import copy_tables
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform.pipeline.reading.read import ReadOutcome, read_partitions
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.resources import find_run
from cdc_platform.visible import visible_text


def build_partition_lineage(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Return the asset of a pipeline's partition lineage."""

    @dg.asset(
        **assets.arguments(assets.lineage, {"python", "iceberg"}),
        description="Every partition of the source with its parents, its state and its position.\n\n"
        "It is derived only from committed windows, so materialising it again changes nothing.",
    )
    def partition_lineage(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        lineage = trace_lineage(find_run(context, assets.run_key).pipeline)
        sync_partitions(context.instance, assets.pipeline, lineage)
        return dg.MaterializeResult(metadata=metadata.describe_lineage(lineage), data_version=FOLLOWED)

    return partition_lineage


def build_change_log(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Return the asset of a pipeline's change log."""

    @dg.asset(
        **assets.arguments(
            assets.log,
            {"pyspark", "iceberg"},
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
        **assets.arguments(assets.copies, {"pyspark", "iceberg"}),
        description="Initial copies of the existing rows of tables: the timestamp and the chunks of each.\n\n"
        "Materialising it copies for at most `copy_s` seconds. A table is in no cut until its copy is "
        "complete; then the change log takes over right after that timestamp. An interrupted copy "
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


def build_raw_change_records(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Return the asset of a pipeline's raw change records."""

    @dg.asset(
        **assets.arguments(assets.raw, {"pyspark", "iceberg"}),
        partitions_def=change_stream_partitions(assets.pipeline),
        backfill_policy=dg.BackfillPolicy.single_run(),
        description="Change records as the source sent them, with the control records and one row for each "
        "window and each file.\n\nEach partition is a live partition of a change stream, an object of "
        "Datastream, or the whole stream of Debezium's events. Materialising some of them reads only these, "
        "up to the source's present; materialising all of them also reads their children. Only the single "
        "commit of a cycle advances the reader.\n\nBefore the first run there is none to select: add the "
        "partition `root`.",
    )
    def raw_change_records(
        context: dg.AssetExecutionContext,
    ) -> Iterator[dg.AssetCheckEvaluation | dg.AssetMaterialization | dg.MaterializeResult[None]]:
        run = find_run(context, assets.run_key)
        yield from carry_over(context, assets)
        # A user who starts a run may have repaired unreadable files; the sensor's runs keep to the pauses.
        ends_pauses = FULL_CHECKS_TAG not in context.run.tags
        # Runs that people start in the UI name partitions; those of the sensor and the schedule do not.
        is_chosen = context.has_partition_key or context.has_partition_key_range
        keys = context.partition_keys if is_chosen else None
        outcome = read_partitions(run.pipeline, run.spark, keys, ends_pauses=ends_pauses)
        # Dagster counts an asset without any event as missing.
        yield dg.AssetMaterialization(assets.source, metadata=metadata.describe_source(outcome.clock_micros))
        lineage = trace_lineage(run.pipeline)
        if keys is None:
            yield from _partition_events(DataVersions(assets, context.instance), outcome, lineage)
        else:
            _add_window_metadata(context, outcome, lineage, set(keys))
        # Metadata of the result would be repeated for each of its partitions.
        yield dg.MaterializeResult(data_version=FOLLOWED)

    return raw_change_records


def _partition_events(
    versions: DataVersions, outcome: ReadOutcome, lineage: Lineage
) -> Iterator[dg.AssetMaterialization]:
    """Yield a materialisation of each partition that is live or was read, as of a run that names them all.

    Those that had nothing to read have one as well: the runs that read them before will be deleted.
    """
    reports = {report.token: report for report in outcome.windows}
    for token, partition in lineage.partitions.items():
        if partition.is_live or token in reports:
            report = reports.get(token)
            facts = metadata.describe_window(report, outcome.clock_micros) if report is not None else {}
            yield versions.materialise(versions.assets.raw, facts, partition=partition.key)


def _add_window_metadata(
    context: dg.AssetExecutionContext, outcome: ReadOutcome, lineage: Lineage, chosen_keys: Collection[str]
) -> None:
    for report in outcome.windows:
        partition = lineage.partitions.get(report.token)
        if partition is not None and partition.key in chosen_keys:
            facts = metadata.describe_window(report, outcome.clock_micros)
            context.add_asset_metadata(facts, partition_key=partition.key)
