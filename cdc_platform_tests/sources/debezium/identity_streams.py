"""Streams of a table that has one replica identity after the other."""

import json
from typing import Final

from hypothesis import strategies as st

from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER
from cdc_platform_tests.support.debezium.connector import Connector

TEXTS: Final = ("a", "b", DEFAULT_PLACEHOLDER)


@st.composite
def identity_streams(draw: st.DrawFn) -> list[str]:
    """Return what a connector sends of changes to few rows, each in its own transaction.

    Without orders in their transactions, nothing shows whether an inserted row is new.
    """
    connector, alive = Connector(is_full=draw(st.booleans())), set[int]()
    for _ in range(draw(st.integers(2, 16))):
        if draw(st.integers(0, 7)) == 0:
            connector.is_full = not connector.is_full
        connector.begin()
        _change(draw, connector, alive)
        connector.end()
    return connector.lines if draw(st.booleans()) else list(map(_without_order, connector.lines))


def _without_order(text: str) -> str:
    message = json.loads(text)
    if "op" in message["value"]:
        message["value"]["transaction"] = None
    return json.dumps(message)


def _change(draw: st.DrawFn, connector: Connector, alive: set[int]) -> None:
    key, big = draw(st.integers(0, 3)), draw(st.sampled_from(TEXTS))
    if key not in alive:
        connector.insert(key, big=big)
        alive.add(key)
    elif draw(st.booleans()):
        connector.update(key, n=draw(st.integers(0, 9)), big=big)
    else:
        alive.remove(key)
        other = draw(st.integers(0, 3))
        if other in alive or other == key:
            connector.delete(key)
        else:
            connector.move(key, other, n=1, big=big)
            alive.add(other)
