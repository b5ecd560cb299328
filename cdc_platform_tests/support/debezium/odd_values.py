"""Rows with values that no database sends, such as half of a surrogate pair."""

from typing import Any, Final

from cdc_platform_tests.sources.debezium.written_events import envelope, line

HALF: Final = "\ud800"


def inserted(key: Any = 2, *, text: Any = "a", **rest: Any) -> str:
    """Return the line of an inserted row."""
    return line(envelope("c", after={"id": key, "n": 1, "big": text}, **rest), {"id": key})
