"""Change stream partitions as Dagster's dynamic partitions."""

from dataclasses import dataclass

import dagster as dg

from cdc_platform.model.stream.lineage import Lineage, live


def change_stream_partitions(pipeline: str) -> dg.DynamicPartitionsDefinition:
    """Return the partitions of a pipeline's raw change records: one for each partition that may be read."""
    return dg.DynamicPartitionsDefinition(name=f"{pipeline}/change_stream_partitions")


@dataclass(frozen=True)
class KeyChanges:
    """How Dagster's keys differ from the lineage; ``kept`` are in the order in which they were added."""

    kept: tuple[str, ...]
    added: tuple[str, ...]
    retired: tuple[str, ...]

    @property
    def live(self) -> tuple[str, ...]:
        """The keys once added and retired ones are applied, in Dagster's order."""
        return (*self.kept, *self.added)


def compare_keys(instance: dg.DagsterInstance, pipeline: str, lineage: Lineage) -> KeyChanges:
    """Return which keys Dagster lacks, and which ones it has too many."""
    name = change_stream_partitions(pipeline).name
    known = tuple(instance.get_dynamic_partitions(str(name)))
    wanted = tuple(partition.key for partition in live(lineage))
    return KeyChanges(
        kept=tuple(key for key in known if key in wanted),
        added=tuple(key for key in wanted if key not in known),
        retired=tuple(key for key in known if key not in wanted),
    )


def add_live_partitions(instance: dg.DagsterInstance, pipeline: str, lineage: Lineage) -> None:
    """Add what may be read now; retiring is left to the sensor, for a run may still name old keys."""
    changes = compare_keys(instance, pipeline, lineage)
    if changes.added:
        name = change_stream_partitions(pipeline).name
        instance.add_dynamic_partitions(str(name), list(changes.added))
