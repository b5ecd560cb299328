"""Tables of which a repeated snapshot has no row are emptied where the connector says that it looked."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from cdc_platform.sources.debezium.settings.connector import SnapshotPolicy
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.cycles import Cycles
from cdc_platform_tests.sources.debezium.written_events import COLUMNS, TABLE, line, settings_with
from cdc_platform_tests.support.debezium.connector import Connector, feed
from cdc_platform_tests.support.debezium.snapshots import ITEMS, items, rows_after, snapshot

SECOND_MS: Final = 1_700_000_000_000
"""When changes and snapshots of these tests were sent."""


def cycles_over(folder: Path, policy: SnapshotPolicy, *, has_transactions: bool) -> Cycles:
    """Return cycles over a folder's files."""
    columns = {**COLUMNS, ITEMS: COLUMNS[TABLE]}
    place = FilesInput(str(folder))
    settings = settings_with(
        input=place, columns=columns, has_transaction_topic=has_transactions, snapshots=policy
    )
    return Cycles(settings)


def scanned(table: str, rows: int, seconds: int = 2000) -> str:
    """Return a notification that a snapshot has read a table; as Debezium 3.6.3 sends it."""
    more: dict[str, Any] = {"connector_name": "s", "scanned_collection": table, "status": "SUCCEEDED"}
    more |= {"total_rows_scanned": str(rows), "data_collections": f"{TABLE},{ITEMS}"}
    kind = {"aggregate_type": "Initial Snapshot", "type": "TABLE_SCAN_COMPLETED"}
    fields: dict[str, Any] = {**kind, "additional_data": more}
    fields |= {"id": f"{table} {seconds}", "timestamp": SECOND_MS + seconds * 1000}
    return line(fields, {"id": fields["id"]}, topic="s.notifications")


def left_of(cycles: Cycles, table: str) -> list[Any]:
    """Return the keys that a table has."""
    return rows_after([row for row in cycles.log if row["table_name"] == table])


@pytest.mark.parametrize("has_transactions", [True, False])
@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_table_without_rows_is_emptied(tmp_path: Path, cut: int, *, has_transactions: bool) -> None:
    """It is so with the rows of the others, wherever a cycle ends; other tables and later rows stay."""
    cycles = cycles_over(tmp_path, SnapshotPolicy.REPLACE, has_transactions=has_transactions)
    feed(cycles, [*snapshot(100, [1, 2])[:1], *items(snapshot(100, [7, 8])[1:]), scanned(TABLE, 1)])
    first, *rest = snapshot(800, [1, 2, 3])
    again = [first, scanned(ITEMS, 0), *rest]
    feed(cycles, again[:cut])
    if has_transactions and cut < len(again):
        assert left_of(cycles, ITEMS) == [8]
    feed(cycles, again[cut:])
    assert left_of(cycles, ITEMS) == []
    assert left_of(cycles, TABLE) == [1, 2, 3]
    after = Connector(commit=900, lsn=900)
    after.whole(9)
    feed(cycles, items(after.lines))
    feed(cycles, [*again, *items(after.lines)])
    assert left_of(cycles, ITEMS) == [9]


@pytest.mark.parametrize("has_transactions", [True, False])
def test_a_snapshot_without_any_row_empties_all_tables(tmp_path: Path, *, has_transactions: bool) -> None:
    """It has no position of its own, so the first change after it says where it was."""
    cycles = cycles_over(tmp_path, SnapshotPolicy.REPLACE, has_transactions=has_transactions)
    feed(cycles, [*snapshot(100, [1, 2]), scanned(TABLE, 2)])
    after = Connector(commit=900, lsn=900)
    after.whole(9)
    after.whole(10)
    feed(cycles, [scanned(TABLE, 0), *after.lines[:1]])
    assert left_of(cycles, TABLE) == [1, 2]
    feed(cycles, after.lines[1:])
    assert left_of(cycles, TABLE) == [9, 10]


def test_what_is_not_known_to_be_empty_stays(tmp_path: Path) -> None:
    """A merging snapshot, one that did not look, and a notification that comes after newer changes."""
    merged = cycles_over(tmp_path / "merge", SnapshotPolicy.MERGE, has_transactions=True)
    feed(merged, [*items(snapshot(100, [7])), scanned(ITEMS, 0), *snapshot(800, [1, 2])])
    assert left_of(merged, ITEMS) == [7]
    cycles = cycles_over(tmp_path / "replace", SnapshotPolicy.REPLACE, has_transactions=True)
    feed(cycles, [*items(snapshot(100, [7])), *snapshot(800, [1, 2])])
    assert left_of(cycles, ITEMS) == [7]
    connector = Connector(commit=900, lsn=900)
    connector.whole(9)
    late = json.loads(scanned(ITEMS, 0))
    late["value"]["timestamp"] = SECOND_MS
    feed(cycles, [*items(connector.lines), json.dumps(late), *snapshot(1200, [1])])
    assert left_of(cycles, ITEMS) == [7, 9]
