"""Snapshots that come again: rows that they do not have go or stay, and no cut shows the half of one."""

import json
from pathlib import Path

import pytest

from cdc_platform.sources.debezium.rows.snapshots import IN_SNAPSHOT
from cdc_platform.sources.debezium.settings.connector import SnapshotPolicy
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.cycles import Cycles
from cdc_platform_tests.sources.debezium.written_events import settings_with
from cdc_platform_tests.support.debezium.connector import Connector, feed, keys_of
from cdc_platform_tests.support.debezium.snapshots import rows_after, snapshot


def cycles_over(folder: Path, policy: SnapshotPolicy = SnapshotPolicy.REPLACE) -> Cycles:
    """Return cycles over a folder's files."""
    place = FilesInput(str(folder))
    return Cycles(settings_with(input=place, has_transaction_topic=True, snapshots=policy))


def test_replace_takes_away_what_a_repeated_snapshot_lacks(tmp_path: Path) -> None:
    """Rows deleted without a capture are gone; the first snapshot and later changes are as usual."""
    connector = Connector(commit=200, lsn=200)
    connector.whole(5)
    cycles = feed(cycles_over(tmp_path), [*snapshot(100, [1, 2, 3]), *connector.lines])
    assert [row["mod_type"] for row in cycles.log] == ["SNAPSHOT"] * 3 + ["INSERT"]
    after = Connector(commit=900, lsn=900, transaction=800)
    after.whole(6)
    feed(cycles, [*snapshot(800, [2, 5]), *after.lines])
    assert rows_after(cycles.log) == [2, 5, 6]
    assert [row["mod_type"] for row in cycles.log[4:]] == ["TRUNCATE", "SNAPSHOT", "SNAPSHOT", "INSERT"]


def test_merge_keeps_what_a_repeated_snapshot_lacks(tmp_path: Path) -> None:
    """The log has the rows of both."""
    cycles = feed(cycles_over(tmp_path, SnapshotPolicy.MERGE), snapshot(100, [1, 2, 3]))
    feed(cycles, snapshot(800, [2, 5]))
    assert rows_after(cycles.log) == [1, 2, 3, 5]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_repeated_snapshot_waits_until_its_end(tmp_path: Path, cut: int) -> None:
    """Wherever a cycle ends in it, the table is the old one before, the new one after."""
    cycles = feed(cycles_over(tmp_path), snapshot(100, [1, 2]))
    again = snapshot(800, [2, 3, 4, 5])
    feed(cycles, again[:cut])
    assert rows_after(cycles.log) == [1, 2]
    assert [item["transaction_id"] for item in cycles.waiting] == ["snapshot 800"]
    feed(cycles, again[cut:])
    assert rows_after(cycles.log) == [2, 3, 4, 5]
    assert cycles.waiting == []


def test_a_snapshot_that_a_crash_has_ended(tmp_path: Path) -> None:
    """It starts over, as another one, which alone counts; also where the very first one was ended."""
    cycles = feed(cycles_over(tmp_path), snapshot(100, [1, 2, 3])[:2])
    feed(cycles, snapshot(200, [2, 3, 4])[:2])
    feed(cycles, snapshot(300, [3, 4, 5]))
    assert rows_after(cycles.log) == [3, 4, 5]
    assert cycles.waiting == []


def test_a_snapshot_whose_end_never_comes(tmp_path: Path) -> None:
    """The first change after it shows that it has ended."""
    cycles = feed(cycles_over(tmp_path), snapshot(100, [1, 2]))
    feed(cycles, snapshot(800, [2, 3, 4])[:2])
    connector = Connector(commit=900, lsn=900)
    connector.whole(9)
    feed(cycles, connector.lines)
    assert rows_after(cycles.log) == [2, 3, 9]
    assert cycles.waiting == []


def test_rows_without_a_key_are_always_replaced(tmp_path: Path) -> None:
    """Nothing else says which of the equal rows are new; a table of one row is replaced as well."""
    cycles = feed(cycles_over(tmp_path, SnapshotPolicy.MERGE), snapshot(100, [None, None, None]))
    assert rows_after(cycles.log) == [None] * 3
    feed(cycles, snapshot(800, [None, None]))
    assert rows_after(cycles.log) == [None] * 2
    feed(cycles, snapshot(900, [None]))
    assert rows_after(cycles.log) == [None]


def test_a_change_without_a_key_that_a_snapshot_may_have_had_is_noted(tmp_path: Path) -> None:
    """A blocking snapshot reads what is there later than its position, and the changes between follow it."""
    cycles = feed(cycles_over(tmp_path), snapshot(100, [None, None]))
    taken_ms = 1_700_000_001_000
    lines = snapshot(800, [None, None], ts_ms=taken_ms)
    connector = Connector(commit=900, lsn=900, transaction=taken_ms % 1_700_000_000_000 - 1)
    for _ in range(3):
        connector.begin()
        connector.insert(None, 1)
        connector.end()
    feed(cycles, [*lines, *connector.lines])
    noted = [json.loads(row["event"]["metadata"]).get(IN_SNAPSHOT) for row in cycles.log[-3:]]
    assert noted == [["INSERT"], None, None]


def test_a_stream_that_began_without_a_snapshot(tmp_path: Path) -> None:
    """Its first snapshot contains all rows."""
    connector = Connector()
    connector.whole(1)
    cycles = feed(cycles_over(tmp_path), connector.lines)
    feed(cycles, snapshot(800, [2]))
    assert keys_of(cycles) == [1, None, 2]
    assert rows_after(cycles.log) == [2]
