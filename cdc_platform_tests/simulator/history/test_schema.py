"""Schema changes of the simulator: contents of records and information schema, and refused changes."""

import json
from collections import defaultdict
from typing import Any, Final

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.simulator.sql.information import Information
from cdc_platform.simulator.wire.simulator_settings import Dialect, SchemaChange, SchemaChangeKind
from cdc_platform_tests.simulator.histories import ORIGIN, SECOND, data_of, follow, simulated


def test_schema_changes_at_their_times() -> None:
    """Records have the columns of their time, and rows older than a column have NULL in it."""
    changes = (
        SchemaChange(1, SchemaChangeKind.ADD_COLUMN, "transfers", "memo", "STRING(MAX)"),
        SchemaChange(2, SchemaChangeKind.RETYPE_COLUMN, "transfers", "note", "BYTES(MAX)"),
        SchemaChange(3, SchemaChangeKind.SET_CAPTURE, value="NEW_VALUES"),
        SchemaChange(4, SchemaChangeKind.DROP_COLUMN, "transfers", "memo"),
        SchemaChange(5, SchemaChangeKind.ADD_TABLE, "audit_1"),
    )
    database = simulated(9, rate=100, schema_changes=changes)
    columns: dict[int, set[str]] = defaultdict(set)
    for record in data_of(follow(database)):
        if record.table_name == "transfers" and record.mod_type == "INSERT":
            types = {
                column["name"]: column["type"]["code"] for column in json.loads(record.column_types or "")
            }
            second = (record.record_timestamp - ORIGIN) // SECOND
            columns[second].add(f"{types.get('memo')} {types['note']} {record.value_capture_type}")

    assert {"None STRING NEW_ROW"} == columns[0]
    assert {"STRING STRING NEW_ROW"} == columns[1]
    assert {"STRING BYTES NEW_ROW"} == columns[2]
    assert {"STRING BYTES NEW_VALUES"} == columns[3]
    assert {"None BYTES NEW_VALUES"} == columns[4]
    assert "audit_1" in {record.table_name for record in data_of(follow(database))}


WATCHED: Final[tuple[tuple[str, dict[str, set[str]]], ...]] = (
    # The clause, and what records of transfers and accounts have besides the key.
    ("ALL", {"transfers": {"note", "amount"}, "accounts": {"balance"}}),
    ("transfers(`note`), accounts", {"transfers": {"note"}, "accounts": {"balance"}}),
    ("transfers()", {"transfers": set()}),
    ("accounts(owner)", {"accounts": set()}),
    ("", {}),
    ("accounts, transfers", {"transfers": {"note", "amount"}, "accounts": {"balance"}}),
)


@pytest.mark.parametrize("capture", ["NEW_ROW", "OLD_AND_NEW_VALUES"])
def test_records_have_what_the_stream_watches_at_their_time(capture: str) -> None:
    """Tables and columns leave the stream and come back; an update of an unwatched column is not recorded."""
    kind = SchemaChangeKind.SET_WATCHED
    changes = tuple(SchemaChange(second, kind, value=clause) for second, (clause, _) in enumerate(WATCHED))
    database = simulated(
        len(WATCHED), rate=100, schema_changes=changes, value_capture_type=ValueCaptureType(capture)
    )
    columns_by_moment: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    updates: dict[int, set[str]] = defaultdict(set)
    for record in data_of(follow(database)):
        second, table = (record.record_timestamp - ORIGIN) // SECOND, str(record.table_name)
        named = {column["name"] for column in json.loads(record.column_types or "")}
        columns_by_moment[second][table] |= named & {"note", "amount", "balance"}
        updates[second] |= {table} if record.mod_type == "UPDATE" else set()
        mods = [json.loads(text or "{}") for text in record.mods or ()]
        assert all({*values} <= named for values in mods), record

    for second, (_, expected) in enumerate(WATCHED):
        assert expected == columns_by_moment[second], f"second {second}"
    assert "transfers" not in updates[2]


@pytest.mark.parametrize("dialect", list(Dialect))
def test_the_information_schema_shows_what_was_watched(dialect: Dialect) -> None:
    """At any moment it lists the tables and columns that the stream named, and none where it watches all."""
    change = SchemaChange(1, SchemaChangeKind.SET_WATCHED, value="transfers(note, fee), accounts")
    database = simulated(3, dialect=dialect, schema_changes=(change,))

    information = Information(database.settings)

    def listed(second: int, what: str) -> list[tuple[Any, ...]]:
        schema = database.history.schemas.at(ORIGIN + second * SECOND)
        return information.answer(f"SELECT {what}", {}, schema)[1]

    yes, no = (True, False) if dialect is Dialect.GOOGLESQL else ("YES", "NO")
    tables = "table_name, all_columns FROM information_schema.change_stream_tables ORDER BY table_name"
    columns = "column_name FROM information_schema.change_stream_columns ORDER BY column_name"
    every = "change_stream_name, cs.all FROM information_schema.change_streams AS cs"
    assert ([], [], [("bank_changes", yes)]) == (listed(0, tables), listed(0, columns), listed(0, every))
    assert [("accounts", yes), ("transfers", no)] == listed(2, tables)
    assert listed(2, columns) == [("fee",), ("note",)]
    assert [("bank_changes", no)] == listed(2, every)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (SchemaChange(0, SchemaChangeKind.DROP_COLUMN, "transfers", "nope"), "lacks: nope"),
        (SchemaChange(0, SchemaChangeKind.SET_WATCHED, value="nope"), "table that does not exist: nope"),
        (SchemaChange(0, SchemaChangeKind.SET_WATCHED, value="accounts(nope)"), "the key: accounts.nope"),
        (SchemaChange(0, SchemaChangeKind.SET_WATCHED, value="accounts(account_id)"), "accounts.account_id"),
        (SchemaChange(0, SchemaChangeKind.SET_WATCHED, value="accounts transfers"), "invalid text after FOR"),
    ],
)
def test_schema_change_of_no_column_is_refused(change: SchemaChange, problem: str) -> None:
    """A change must name tables and columns that are there."""
    with pytest.raises(SettingError, match=problem):
        simulated(1, schema_changes=(change,))


def test_a_column_that_the_stream_names_cannot_be_dropped() -> None:
    """As in Spanner: first it has to leave the stream."""
    changes = (
        SchemaChange(0, SchemaChangeKind.SET_WATCHED, value="transfers(note)"),
        SchemaChange(1, SchemaChangeKind.DROP_COLUMN, "transfers", "note"),
    )
    with pytest.raises(SettingError, match=r"drops a column that the change stream names: transfers\.note"):
        simulated(2, schema_changes=changes).database.now_micros()


def test_changes_come_round_and_round() -> None:
    """Each lap of the endless ones has every kind, and all of them can be made."""
    schemas = simulated(1, schema_change_every_s=1.0, all_types=True, banks=2).history.schemas
    versions = [schemas.at(ORIGIN + second * SECOND) for second in range(40)]

    assert [*range(40)] == [schema.version for schema in versions]
    assert {ValueCaptureType.NEW_ROW, ValueCaptureType.NEW_VALUES} < {schema.capture for schema in versions}
    assert {f"audit_{lap}" for lap in range(1, 5)} <= versions[-1].tables.keys()
    left = {
        (table.name, table.is_watched)
        for schema in versions
        for table in schema.tables.values()
        if not table.is_watched or table.listed is not None
    }
    assert {("transfers", True), ("audit_1", False), ("audit_2", False)} <= left
