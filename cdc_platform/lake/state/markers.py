"""Markers: messages that somebody wrote into the source's log, by which moments of the lake can be found."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdc_platform.lake.catalog.damage import understanding
from cdc_platform.lake.catalog.lake import RAW, Lake
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.stream.records import RecordKind


@dataclass(frozen=True)
class Marker:
    """A message of the source's log; ``tick`` is the one that has read it, with all that came before it.

    ``order_key`` has its place among the changes: those with a smaller one were committed before it.
    """

    tick: int
    order_key: str
    prefix: str
    content: str
    lsn: int | None
    transaction: str | None


@understanding(RAW)
def list_markers(lake: Lake, after_tick: int = 0, until_tick: int | None = None) -> tuple[Marker, ...]:
    """Return the markers that ticks `(after_tick, until_tick]` have read, in order; each once."""
    window = f"kind = '{RecordKind.MESSAGE.value}' and tick > {after_tick}"
    if until_tick is not None:
        window += f" and tick <= {until_tick}"
    columns = ("kind", "tick", "record_order", "record_sequence", "event")
    rows = lake.system_table(RAW).scan(row_filter=window, selected_fields=columns).to_arrow().to_pylist()
    found: dict[str, Marker] = {}
    for row in sorted(rows, key=lambda row: (row["tick"], row["record_order"])):
        found.setdefault(row["record_sequence"], _marker(row))
    return tuple(found.values())


def _marker(row: Mapping[str, Any]) -> Marker:
    told = json.loads(row["event"]["metadata"])
    return Marker(
        row["tick"], row["record_order"], told["prefix"], told["content"], told["lsn"], told["transaction"]
    )


def markers_of(cuts: tuple[Cut, ...], markers: tuple[Marker, ...]) -> Mapping[int, tuple[Marker, ...]]:
    """Return, by number of the cut, the markers that lie in it and not in the cut before.

    Args:
        cuts: oldest first; of the first one all markers are told that are not younger.
        markers: in the order of their ticks.
    """
    found: dict[int, tuple[Marker, ...]] = {}
    begun = -1
    for cut in cuts:
        found[cut.cut] = tuple(marker for marker in markers if begun < marker.tick <= cut.tick)
        begun = cut.tick
    return found
