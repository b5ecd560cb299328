"""The raw layer: change records as the source sent them."""

from collections.abc import Collection, Iterator, Mapping

import dagster as dg

from cdc_platform import metadata
from cdc_platform.assets.check_results import carry_over
from cdc_platform.assets.data_versions import FOLLOWED
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.claims import FULL_CHECKS_TAG
from cdc_platform.partitions import change_stream_partitions
from cdc_platform.pipeline.reading.read import ReadOutcome, read_partitions
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.resources import find_run


def build_raw_change_records(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Return the asset of a pipeline's raw change records."""

    @dg.asset(
        **assets.arguments(
            assets.raw,
            {"pyspark", "iceberg"},
            **assets.own_columns(assets.raw),
        ),
        partitions_def=change_stream_partitions(assets.pipeline),
        backfill_policy=dg.BackfillPolicy.single_run(),
        description="Change records as the source sent them, with the control records and one row for each "
        "window and each file.\n\nA partition is a live partition of the source: one of a change stream, "
        "an object of Datastream, or the whole stream of Debezium's events. Materialising some of them reads "
        "only these up to the source's present; materialising all of them also reads their children. Only "
        "the single commit of a cycle advances the reader.",
    )
    def raw_change_records(
        context: dg.AssetExecutionContext,
    ) -> Iterator[dg.AssetCheckEvaluation | dg.AssetMaterialization | dg.MaterializeResult[None]]:
        run = find_run(context, assets.run_key)
        yield from carry_over(context, assets)
        # A user who starts a run may have repaired unreadable files; the sensor's runs keep to the pauses.
        ends_pauses = FULL_CHECKS_TAG not in context.run.tags
        # Dagster's UI always names partitions; runs that are started by other means may not.
        is_chosen = context.has_partition_key or context.has_partition_key_range
        keys = context.partition_keys if is_chosen else None
        read = read_partitions(run.pipeline, run.spark, keys, ends_pauses=ends_pauses)
        # Dagster counts an asset without any event as missing.
        yield dg.AssetMaterialization(assets.source, metadata=metadata.describe_source(read.clock_micros))
        if keys is not None:
            partitions = trace_lineage(run.pipeline).partitions.values()
            tokens = {partition.token: partition.key for partition in partitions}
            _add_window_metadata(context, read, tokens, set(keys))
        # Metadata of the result would be repeated for each of its partitions.
        yield dg.MaterializeResult(data_version=FOLLOWED)

    return raw_change_records


def _add_window_metadata(
    context: dg.AssetExecutionContext,
    read: ReadOutcome,
    keys: Mapping[str, str],
    chosen_keys: Collection[str],
) -> None:
    for report in read.windows:
        key = keys.get(report.token)
        if key in chosen_keys:
            described = metadata.describe_window(report, read.clock_micros)
            context.add_asset_metadata(described, partition_key=key)
