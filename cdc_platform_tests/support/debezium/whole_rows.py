"""Rows of a table with REPLICA IDENTITY FULL whose key changes."""

from collections.abc import Mapping
from typing import Any, Final

from cdc_platform.sources.debezium.settings.connector import NullPolicy
from cdc_platform_tests.sources.debezium.written_events import TABLE, envelope, line

COLUMNS: Final = {TABLE: {"id": "integer", "n": "numeric", "v": "text"}}
FIVE: Final = {"scale": 0, "value": "BQ=="}
OLD: Final[dict[str, Any]] = {"id": 1, "n": FIVE, "v": "a"}
NEW: Final[dict[str, Any]] = {"id": 2, "n": None, "v": "a"}
POLICIES: Final = [{}, {"numeric": NullPolicy.UNAVAILABLE}]


def halves(old: Mapping[str, Any], new: Mapping[str, Any], *, with_headers: bool = True) -> list[str]:
    """Return a key change under FULL: its delete has the whole row, its insert no row before."""
    keys = {"id": old["id"]}, {"id": new["id"]}
    headers = ({"__debezium.newkey": keys[1]}, {"__debezium.oldkey": keys[0]}) if with_headers else ({}, {})
    return [
        line(envelope("d", before=old), keys[0], headers=headers[0]),
        line(envelope("c", after=new), keys[1], headers=headers[1]),
    ]
