"""Markers: messages that users write into the source's log to find moments of the lake."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.base.stored_texts import parse_stored, read_stored, understanding
from cdc_platform.model.stream.records import RecordKind


@dataclass(frozen=True)
class _Message:
    """Metadata of a message's raw record."""

    prefix: str
    content: str
    lsn: int | None
    transaction: str | None


@dataclass(frozen=True)
class Marker(_Message):
    """A message of the source's log; ``cycle`` is the cycle that read it, with all changes before it.

    ``ordering_key`` is its place among the changes: changes with a smaller key were committed before it.
    """

    cycle: int
    ordering_key: str


@understanding(RAW)
def list_markers(lake: Lake) -> tuple[Marker, ...]:
    """Return the markers that cycles have read, in order, without duplicates."""
    window = f"kind = '{RecordKind.MESSAGE.value}'"
    columns = ("kind", "cycle", "record_order", "record_sequence", "event")
    rows = lake.system_table(RAW).scan(row_filter=window, selected_fields=columns).to_arrow().to_pylist()
    markers: dict[str, Marker] = {}
    for row in sorted(rows, key=lambda row: (row["cycle"], row["record_order"])):
        markers.setdefault(row["record_sequence"], marker_of(row))
    return tuple(markers.values())


def marker_of(row: Mapping[str, Any]) -> Marker:
    """Return the marker in a row of the raw table.

    Raises:
        LakeDamaged: the row is not a marker.
    """
    place = f"the message {row['record_sequence']}"
    message = read_stored(partial(parse_stored, shape=_Message), row["event"]["metadata"], RAW, place)
    return Marker(**vars(message), cycle=row["cycle"], ordering_key=row["record_order"])


def markers_of(cuts: tuple[Cut, ...], markers: tuple[Marker, ...]) -> Mapping[int, tuple[Marker, ...]]:
    """Return the markers of each cut that the cut before does not have, by number of the cut.

    Args:
        cuts: oldest first; the first one has all markers up to it.
        markers: in the order of their cycles.
    """
    by_cut: dict[int, tuple[Marker, ...]] = {}
    previous = -1
    for cut in cuts:
        by_cut[cut.cut] = tuple(marker for marker in markers if previous < marker.cycle <= cut.cycle)
        previous = cut.cycle
    return by_cut
