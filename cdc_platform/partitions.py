"""Change stream partitions as Dagster's dynamic partitions."""

from dataclasses import dataclass

import dagster as dg

from cdc_platform.model.stream.lineage import Lineage, live


def change_stream_partitions(pipeline: str) -> dg.DynamicPartitionsDefinition:
    """Return the partitions of a pipeline's raw change records: one for each partition that may be read."""
    return dg.DynamicPartitionsDefinition(name=f"{pipeline}/change_stream_partitions")


@dataclass(frozen=True)
class KeyChanges:
    """Differences between Dagster's keys and the lineage; ``unchanged`` are in the order they came in."""

    unchanged: tuple[str, ...]
    added: tuple[str, ...]
    retired: tuple[str, ...]

    @property
    def live(self) -> tuple[str, ...]:
        """The keys once added and retired ones are applied, in Dagster's order."""
        return (*self.unchanged, *self.added)


def compare_keys(instance: dg.DagsterInstance, pipeline: str, lineage: Lineage) -> KeyChanges:
    """Return which keys Dagster lacks, and which ones it has too many."""
    name = change_stream_partitions(pipeline).name
    keys_before = tuple(instance.get_dynamic_partitions(str(name)))
    # Dictionaries keep the order, and a key is found in them at once: there may be thousands.
    current_keys, live_keys = dict.fromkeys(keys_before), dict.fromkeys(part.key for part in live(lineage))
    return KeyChanges(
        unchanged=tuple(key for key in current_keys if key in live_keys),
        added=tuple(key for key in live_keys if key not in current_keys),
        retired=tuple(key for key in current_keys if key not in live_keys),
    )


def add_live_partitions(instance: dg.DagsterInstance, pipeline: str, lineage: Lineage) -> None:
    """Add what may be read now; retiring comes later, for a run may still name old keys."""
    changes = compare_keys(instance, pipeline, lineage)
    if changes.added:
        name = change_stream_partitions(pipeline).name
        instance.add_dynamic_partitions(str(name), list(changes.added))


def sync_partitions(instance: dg.DagsterInstance, pipeline: str, lineage: Lineage) -> None:
    """Add the partitions that may be read now, and remove the ended ones, which no run names any more."""
    retired_keys = compare_keys(instance, pipeline, lineage).retired
    add_live_partitions(instance, pipeline, lineage)
    for key in retired_keys:
        instance.delete_dynamic_partition(str(change_stream_partitions(pipeline).name), key)
