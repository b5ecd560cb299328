"""Partitions whose changes the engine would not capture under the name of their table."""

from collections.abc import Sequence
from dataclasses import dataclass

from cdc_platform.errors import ReplicationRefused, SettingError
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput


@dataclass(frozen=True)
class Partition:
    """A partition, at any level.

    Args:
        name: SCHEMA.TABLE.
        root: SCHEMA.TABLE of the table whose rows it has.
        is_published: whether the publication sends its changes under its own name.
    """

    name: str
    root: str
    is_published: bool


def check_partitions(
    settings: EngineInput, partitions: Sequence[Partition], *, joins_partitions: bool
) -> None:
    """Check that changes of partitions have the name of their table, if the settings choose either.

    Args:
        settings: of an engine that captures a partitioned table as one.
        partitions: of the database.
        joins_partitions: whether the publication sends changes of a partition under its table's name.

    Raises:
        SettingError: `tables` name a partition, but not its table.
        ReplicationRefused: the publication sends changes of a partition under its own name.
    """
    for partition in partitions:
        if settings.selects(partition.name) and not settings.selects(partition.root):
            raise SettingError(
                "input.engine.tables",
                f"choose the partition `{partition.name}`, whose changes have the name of its table: name "
                f"`{partition.root}`. Or set the property `publish.via.partition.root: false`, and name "
                f"the partitions in `partitions`. Source: {settings.database_text()}",
            )
    # The connector itself lists the tables of a `filtered` publication, but not how it sends their changes.
    is_filtered = settings.publication_mode == "filtered"
    for partition in partitions:
        is_sent = not joins_partitions if is_filtered else partition.is_published
        if is_sent and settings.selects(partition.root):
            change = (
                f"ADD TABLE {partition.root}"
                if joins_partitions
                else "SET (publish_via_partition_root = true)"
            )
            raise ReplicationRefused(
                f"The publication sends changes of partitions, such as `{partition.name}`, under their own "
                f"names. Run `ALTER PUBLICATION {settings.publication} {change}`, or set the property "
                "`publish.via.partition.root: false` and name the partitions in `partitions`. Source: "
                f"{settings.database_text()}"
            )
