"""The stored history of the source's schema, which a process reads once."""

from pathlib import Path

import pytest

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import Mark
from cdc_platform.lake.state.schema_history import append_events, load_history
from cdc_platform.model.base.stored_names import SCHEMA
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.schema_events import SchemaChange, SchemaEvent
from cdc_platform_tests.support.scans import watch_scans


def added(cycle: int, table: str) -> SchemaEvent:
    """Return the appearance of a table in a cycle."""
    return SchemaEvent(cycle=cycle, change=SchemaChange.TABLE_ADDED, table=table)


def test_an_unchanged_history_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A status page, which asks again and again, gets it without a scan until a commit changes it."""
    lake = Lake(LakeSettings(str(tmp_path)), "p")
    assert load_history(lake) == SchemaHistory()
    append_events(lake, SchemaHistory(), Mark(1, 10, 0), [added(1, "first")])
    scans = watch_scans(monkeypatch)
    first = load_history(lake)
    assert ({"first"}, 1, 10) == ({*first.tables}, first.cycle, first.position_micros)
    assert load_history(lake) == load_history(Lake(lake.settings, "p")) == first
    assert [table for table, _ in scans] == [SCHEMA]

    append_events(lake, first, Mark(2, 20, 0), [added(2, "second")])
    second = load_history(lake)
    assert ({"first", "second"}, 2, 20) == ({*second.tables}, second.cycle, second.position_micros)
    assert [table for table, _ in scans] == [SCHEMA, SCHEMA]
