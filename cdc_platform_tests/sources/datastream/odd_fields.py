"""Events whose fields say what no documentation does."""

import copy
from collections.abc import Iterable
from typing import Any, Final

from cdc_platform_tests.sources.datastream.generated_events import Event, json_event, scenario

ABSENT: Final = "\u2205"
"""Takes a member out."""
ODD: Final[tuple[Any, ...]] = (
    ABSENT,
    *(None, True, False, 0, -1, 2**63, 10**40, 1.5, float("nan"), float("inf")),
    *("", " ", "x", "\u0000", "\ud800", "9" * 60, "NaN", "DELETE", "2024-01-01T00:00:00Z"),
    *([], [None], [[1]], ["ID"], {}, {"": 1}, {"a": {"b": []}}),
    # Moments of before the year 1 and after the year 9999.
    *("-0043-01-01T00:00:00Z", "+12000-01-01T00:00:00Z", 253_402_300_800_000, 10**17, -(10**14)),
)


def odd_event(source: str, number: int, changes: Iterable[tuple[int, Any]]) -> Event:
    """Return an event of a source's scenario with other values in some of its places, or without them."""
    event = json_event(copy.deepcopy(scenario(source)[number]))
    for place, value in changes:
        parts = [
            part
            for part in (event, event.get("source_metadata"), event.get("payload"))
            if isinstance(part, dict)
        ]
        places = [(part, name) for part in parts for name in part]
        part, name = places[place % len(places)]
        part[name] = copy.deepcopy(value)
        if value == ABSENT:
            del part[name]
    return event
