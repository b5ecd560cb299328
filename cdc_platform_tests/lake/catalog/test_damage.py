"""Rows of system tables that the platform cannot have written are damage, reported with the table's name."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from cdc_platform.errors import LakeDamaged
from cdc_platform.lake.catalog.lake import Lake, own_tables
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.control import load_lineage, read_control
from cdc_platform.lake.state.copies import load_plans
from cdc_platform.lake.state.cuts import list_cuts, newest_cut
from cdc_platform.lake.state.last_results import load_results
from cdc_platform.lake.state.markers import list_markers
from cdc_platform.lake.state.quarantine import load_quarantine
from cdc_platform.lake.state.read_progress import list_failed_reads
from cdc_platform.lake.state.schema_history import list_schema_events, load_history
from cdc_platform.model.base.stored_names import (
    CHECK_RESULTS,
    COPIES,
    CUT,
    LINEAGE,
    QUARANTINE,
    RAW,
    READ_PROGRESS,
    SCHEMA,
)
from cdc_platform.model.base.timestamps import to_datetime

CATALOG: Final = "catalog.db"
SOUND: Final = "sound.db"
"""A copy of the catalog: the files of tables never change, so it makes all of the lake sound again."""
MOMENT: Final = to_datetime(1_700_000_000_000_000)
ROW: Final = {"cycle": 1, "partition_token": "p", "record_timestamp": MOMENT}
READ_WINDOW: Final = {"start_exclusive": MOMENT, "end_inclusive": MOMENT, "outcome": "complete"}


ODD_TYPE: Final = '{"code": "A", "type_annotation": ["a"]}'
FAILED: Final = '{"version": "1", "micros": 5, "error": "Broken"}'
WAITING: Final = '{"version": "1", "is_read": true, "waiting": [{"seen": 1}]}'
EVENT: Final = {"cycle": 1, "number": 1, "table_name": "t", "name": "a", "is_primary_key": False}
RECORD: Final = {
    "cycle": 1,
    "reason": "r",
    "partition_token": "p",
    "record_id": "a",
    "transaction_id": "t",
    "record_timestamp": MOMENT,
}


def places_of_quarantined(lake: Lake) -> object:
    """Return what records in quarantine say of themselves."""
    return [(record.place, record.event) for record in load_quarantine(lake)]


def of_first_cycle(lake: Lake) -> object:
    """Return the control rows of the first cycle."""
    return read_control(lake, 1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """The folders of two sound lakes, with and without events, each with a copy of its catalog."""
    made = {delivers_events: tmp_path_factory.mktemp("lake") for delivers_events in (False, True)}
    for delivers_events, folder in made.items():
        _ = Lake(LakeSettings(str(folder)), "p", delivers_events=delivers_events).catalog
        shutil.copy(folder / CATALOG, folder / SOUND)
    return made


def damaged(folders: dict[bool, Path], table: str, row: dict[str, Any], facts: dict[str, str]) -> Lake:
    """Return a lake, sound otherwise, with a foreign row in one of its system tables."""
    folder = folders[table == READ_PROGRESS or "event" in row]
    shutil.copy(folder / SOUND, folder / CATALOG)
    lake = Lake(LakeSettings(str(folder)), "p", delivers_events=table == READ_PROGRESS or "event" in row)
    schema = own_tables(delivers_events=lake.delivers_events)[table]
    lake.system_table(table).append(pa.Table.from_pylist([row], schema), snapshot_properties=facts)
    return lake


@pytest.mark.parametrize(
    ("table", "row", "read"),
    [
        (RAW, {**ROW, "kind": "file", "event": {"metadata": WAITING}}, list_failed_reads),
        (READ_PROGRESS, {"path": "unread@a", "version": '{"version": "1"}', "cycle": 1}, list_failed_reads),
        (
            READ_PROGRESS,
            {"path": "unread@a", "version": FAILED.replace("5", "9" * 30), "cycle": 1},
            list_failed_reads,
        ),
        (
            READ_PROGRESS,
            {"path": "unread@a", "version": FAILED.replace('"1"', "1"), "cycle": 1},
            list_failed_reads,
        ),
        (RAW, {**ROW, "kind": "message", "event": {"metadata": '{"prefix": 1}'}}, list_markers),
        (SCHEMA, {**EVENT, "change": "column_added", "value": "{"}, load_history),
        (
            SCHEMA,
            {**EVENT, "change": "column_added", "value": ODD_TYPE},
            load_history,
        ),
        (SCHEMA, {**EVENT, "change": "column_retyped", "value": '{"code": "A"}'}, load_history),
        (SCHEMA, {**EVENT, "change": "columns_placed", "value": '["a"]'}, load_history),
        (SCHEMA, {**EVENT, "change": "key_ordered", "value": '{"a": 1}'}, load_history),
        (SCHEMA, {**EVENT, "change": "other_tables", "value": "[" * 100_000}, load_history),
        (QUARANTINE, {**RECORD, "record": "{"}, places_of_quarantined),
        (QUARANTINE, {**RECORD, "record": '{"event": [1]}'}, places_of_quarantined),
        (QUARANTINE, {**RECORD, "record": '{"record_order": 1}'}, places_of_quarantined),
        (
            RAW,
            {**ROW, "kind": "read_window", "read_window": {**READ_WINDOW, "outcome": "odd"}},
            of_first_cycle,
        ),
        (
            RAW,
            {**ROW, "kind": "read_window", "read_window": {**READ_WINDOW, "end_inclusive": None}},
            of_first_cycle,
        ),
        (RAW, {**ROW, "kind": "read_window"}, of_first_cycle),
        (RAW, {**ROW, "kind": "child_partitions", "child_partitions": [None]}, of_first_cycle),
        (LINEAGE, {"partition_token": "a", "parent_tokens": [], "state": "ODD"}, load_lineage),
        (LINEAGE, {"partition_token": "a", "state": "RUNNING"}, load_lineage),
        (CUT, {"cut": 1, "tables": [("t", 1)]}, list_cuts),
        (CUT, {"cut": 1}, newest_cut),
        (COPIES, {"table_name": "t", "number": 1}, load_plans),
        (CHECK_RESULTS, {"name": "fresh", "asset": "bank/t"}, load_results),
        (SCHEMA, {"cycle": 1, "number": 1, "change": "odd"}, list_schema_events),
        (SCHEMA, {"change": None}, list_schema_events),
        (QUARANTINE, {"cycle": 1}, load_quarantine),
        (RAW, {**ROW, "kind": "file", "event": {"metadata": "{"}}, list_failed_reads),
        (RAW, {**ROW, "kind": "file", "event": {"metadata": "{}"}}, list_failed_reads),
        (RAW, {**ROW, "kind": "file", "event": {"metadata": "[" * 100_000}}, list_failed_reads),
        (READ_PROGRESS, {"path": "unread@a", "version": "{", "cycle": 1}, list_failed_reads),
        (RAW, {**ROW, "kind": "message", "event": {"metadata": "[]"}}, list_markers),
    ],
)
def test_a_damaged_row_names_its_table(
    folders: dict[bool, Path], table: str, row: dict[str, Any], read: Callable[[Lake], object]
) -> None:
    """A row that cannot be read is reported as damage, with its table and a remedy."""
    lake = damaged(folders, table, row, {"cdc.cycle": "1", "cdc.cut": "1"})
    with pytest.raises(
        LakeDamaged, match=rf"^The lake is damaged, its table `{table}`[:,] .*\. (Restore|Only the last)"
    ) as caught:
        read(lake)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["cdc.position-micros", "cdc.next-ordinal"])
@pytest.mark.parametrize("text", ["soon", "1_0", "", "9" * 40, "9" * 5000])
def test_a_damaged_entry_is_named(folders: dict[bool, Path], name: str, text: str) -> None:
    """A summary entry that is not a number or a moment is reported with its snapshot."""
    facts = {"cdc.cycle": "1", name: text}
    lake = damaged(folders, LINEAGE, {"state": "RUNNING"}, facts)
    if name == "cdc.next-ordinal" and text == "9" * 40:
        assert read_mark(lake.system_table(LINEAGE)).next_ordinal == int(text)
        return
    with pytest.raises(LakeDamaged, match=rf"its table `partition_lineage`, snapshot \d+, entry `{name}`"):
        read_mark(lake.system_table(LINEAGE))


def test_a_damaged_summary_names_its_table(folders: dict[bool, Path]) -> None:
    """So does what a snapshot's summary says of the cycle that made it."""
    lake = damaged(folders, LINEAGE, {"state": "RUNNING"}, {"cdc.cycle": "soon"})
    with pytest.raises(LakeDamaged, match=r"its table `partition_lineage`.*soon"):
        read_mark(lake.system_table(LINEAGE))
