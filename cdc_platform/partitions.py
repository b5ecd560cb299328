"""Change stream partitions as Dagster's dynamic partitions."""

from typing import Final

import dagster as dg

from cdc_platform.model.base.timestamps import MICROS_PER_S
from cdc_platform.model.stream.lineage import Lineage, live

KEEP_ENDED_S: Final = 3600
"""Seconds of the source for which ended partitions stay selectable, and for two cycles at least.

Pages, waiting runs and backfills name partitions, and Dagster fails all of them if one of these is gone.
"""


def change_stream_partitions(pipeline: str) -> dg.DynamicPartitionsDefinition:
    """Return the partitions of a pipeline's raw change records: one for each partition that may be read."""
    return dg.DynamicPartitionsDefinition(name=f"{pipeline}/change_stream_partitions")


def sync_partitions(instance: dg.DagsterInstance, pipeline: str, lineage: Lineage) -> None:
    """Add the partitions that may be read now, and remove those that ended an hour ago."""
    name = str(change_stream_partitions(pipeline).name)
    # Dictionaries keep the order, and a key is found in them at once: there may be thousands.
    keys_before = dict.fromkeys(instance.get_dynamic_partitions(name))
    live_keys = dict.fromkeys(partition.key for partition in live(lineage))
    added_keys = [key for key in live_keys if key not in keys_before]
    if added_keys:
        instance.add_dynamic_partitions(name, added_keys)
    kept_keys = _recently_ended(lineage) | live_keys.keys()
    for key in keys_before:
        if key not in kept_keys:
            instance.delete_dynamic_partition(name, key)


def _recently_ended(lineage: Lineage) -> set[str]:
    partitions = lineage.partitions.values()
    newest_micros = max((partition.position_micros for partition in partitions), default=0)
    keep_after_micros = newest_micros - KEEP_ENDED_S * MICROS_PER_S
    # One cycle after a pause reads more than an hour: what ended in it was live before it.
    keep_after_cycle = lineage.cycle - 1
    return {
        partition.key
        for partition in partitions
        if partition.is_finished
        and (
            partition.position_micros >= keep_after_micros
            or (partition.finished_cycle or 0) >= keep_after_cycle
        )
    }
