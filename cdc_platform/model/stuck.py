"""Partitions that are stuck: the source sends nothing of them, although it was asked anew."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cdc_platform.model.lineage import Lineage
from cdc_platform.model.names import partition_key
from cdc_platform.model.slices import SliceReport
from cdc_platform.model.timestamps import to_rfc3339

_MICROS_PER_S: Final = 1_000_000


@dataclass(frozen=True)
class StuckPartition:
    """A partition that holds the watermark at its position; ``age_s`` is how far it is behind its tick."""

    key: str
    position_micros: int
    age_s: float

    def describe(self) -> str:
        """Return a sentence that names it, with its age."""
        return (
            f"Partition `{self.key}` is stuck: nothing has come of it for {self.age_s:.1f} s of the source's "
            f"time, and it holds the watermark at {to_rfc3339(self.position_micros)}"
        )


def find_stuck(
    lineage: Lineage, reports: Iterable[SliceReport], end_micros: int
) -> tuple[StuckPartition, ...]:
    """Return the partitions that were silent in a tick, the one that is furthest behind first.

    Args:
        lineage: the partitions, before the tick or after it.
        reports: what became of the tick's slices.
        end_micros: where the tick's slices were to end.
    """
    found = [
        StuckPartition(
            key=partition_key(report.token, lineage.partitions[report.token].start_micros),
            position_micros=report.end_inclusive_micros,
            age_s=(end_micros - report.end_inclusive_micros) / _MICROS_PER_S,
        )
        for report in reports
        if report.is_stuck and report.token in lineage.partitions
    ]
    return tuple(sorted(found, key=lambda stuck: (stuck.position_micros, stuck.key)))
