"""The meaning of events: which row, which change, and what is not a change at all."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from cdc_platform.model.stream.events import ADDRESS, ADDRESS_ONLY, ORDERING_KEY, FaultyEvent, SourceEvent
from cdc_platform.sources.datastream.events.envelope import from_text
from cdc_platform.sources.datastream.events.interpreter import Interpreter
from cdc_platform.sources.datastream.events.row_changes import NOTE
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform_tests.sources.datastream.generated_events import Event, to_envelope, to_run
from cdc_platform_tests.sources.datastream.reference_sink import ReferenceSink

PLACE = {
    "database": "shop",
    "table": "items",
    "primary_keys": ["id"],
    "log_file": "mysql-bin.000001",
    "log_position": 4,
}
REDO = {
    "schema": "SHOP",
    "table": "ITEMS",
    "primary_keys": ["id"],
    "scn": 7,
    "rs_id": " 0x01.02.03 ",
    "ssn": 0,
    "row_id": "AAA",
    "tx_id": "T",
}


def mysql(payload: Any = None, *, uuid: str = "u-1", **metadata: Any) -> Event:
    """Return an event of MySQL; a payload of None is a missing one."""
    row = {"id": 1, "v": 10} if payload is None else payload
    return {
        "uuid": uuid,
        "source_timestamp": 1_000,
        "object": "shop_items",
        "read_method": "mysql-cdc-binlog",
        "source_metadata": {**PLACE, **metadata},
        "payload": row or None,
    }


def oracle(payload: dict[str, Any], **metadata: Any) -> Event:
    """Return an event of Oracle."""
    return {**mysql(payload), "read_method": "oracle-cdc-logminer", "source_metadata": {**REDO, **metadata}}


def meaning(event: Event, **settings: Any) -> SourceEvent | FaultyEvent:
    """Return what an event means under some settings."""
    return Interpreter(DatastreamSettings("stream", **settings)).interpret(to_run(event))


def change(event: Event, **settings: Any) -> SourceEvent:
    """Return the change of an event."""
    actual = meaning(event, **settings)
    assert isinstance(actual, SourceEvent), actual
    return actual


def fault(event: Event, **settings: Any) -> FaultyEvent:
    """Return the reason why an event is not a change."""
    actual = meaning(event, **settings)
    assert isinstance(actual, FaultyEvent), actual
    return actual


@pytest.mark.parametrize(
    ("change_type", "is_deleted", "expected"),
    [
        ("INSERT", False, "INSERT"),
        ("CREATE", None, "INSERT"),
        (None, False, "INSERT"),
        ("", None, "INSERT"),
        ("UPDATE", False, "UPDATE"),
        ("UPDATE-INSERT", False, "UPDATE"),
        ("DELETE", True, "DELETE"),
        ("DELETE", None, "DELETE"),
        ("UPDATE-DELETE", True, "DELETE"),
        ("UPDATE-DELETE", False, "DELETE"),  # the Oracle sample
        ("INSERT", True, "DELETE"),
        (None, True, "DELETE"),
        ("", "true", "DELETE"),
        ("UPDATE", "False", "UPDATE"),
    ],
)
def test_what_removes_a_row(change_type: str | None, is_deleted: bool | str | None, expected: str) -> None:
    """A row is removed where the type says so or the mark does."""
    event = change(mysql(change_type=change_type, is_deleted=is_deleted))
    assert expected == event.mod_type
    assert (expected == "DELETE") == (event.new_values is None)
    assert event.keys == '{"id":1}'


@pytest.mark.parametrize(
    ("change_type", "is_deleted"), [("UPDATE-DELETE", False), ("INSERT", True), ("UPDATE", True)]
)
def test_contradictions_are_noted(change_type: str, is_deleted: bool) -> None:
    """An event whose type and mark disagree says so in its metadata."""
    note = json.loads(change(mysql(change_type=change_type, is_deleted=is_deleted)).metadata or "")[NOTE]
    assert f"change_type is {change_type}, but is_deleted is {is_deleted}; taken for a delete" == note


def test_what_a_backfill_read_is_a_snapshot() -> None:
    """A backfill's row does not show whether it is new, for any type of event."""
    event = {**mysql(change_type="INSERT"), "read_method": "mysql-backfill-fulldump"}
    assert change(event).mod_type == "SNAPSHOT"


@pytest.mark.parametrize("metadata", [PLACE, {}])
def test_metadata_show_how_an_event_was_read(metadata: dict[str, Any]) -> None:
    """The source's metadata are kept unchanged, with read method and schema."""
    event = {**mysql(), "schema_key": "5c", "source_metadata": metadata}
    metadata_text = {"_read_method": "mysql-cdc-binlog", "_schema_key": "5c", **metadata}
    assert metadata_text == json.loads(meaning(event).metadata or "")


def test_an_update_is_a_whole_row() -> None:
    """Every event carries the whole row, so a column that it does not name has no value."""
    event = change(mysql({"id": 1, "v": None}, change_type="UPDATE"))
    assert (event.new_values, event.unavailable_columns) == ('{"v":null}', ())


def test_a_delete_has_the_row_as_it_was() -> None:
    """MySQL's deletes contain the row; PostgreSQL's contain the key and NULLs, which mean nothing."""
    assert change(mysql(change_type="DELETE")).old_values == '{"v":10}'
    metadata = {"schema": "s", "table": "t", "primary_keys": ["id"], "lsn": "1/1", "change_type": "DELETE"}
    postgresql = {**mysql(), "read_method": "postgresql-cdc", "source_metadata": metadata}
    assert change(postgresql).old_values is None


def test_an_unknown_change_is_a_fault() -> None:
    """A type that this version does not know is neither a write nor a delete."""
    assert "'TRUNCATE'" in fault(mysql(change_type="TRUNCATE")).reason


def test_faults_can_be_replayed() -> None:
    """The text of a fault holds the whole event, so that other settings can make sense of it later."""
    event = mysql(log_file="third-bin.000001", change_type="INSERT")
    actual = fault(event, binlog_basenames=("mysql-bin",))
    assert (actual.table, actual.event_id, actual.position) == ("shop.items", "shop.items/u-1", 0)
    again = Interpreter(DatastreamSettings("stream")).interpret(from_text(actual.text))
    assert change(event) == again


def test_an_event_without_uuid_is_known_by_its_content() -> None:
    """Equal events without a uuid are one event, and different ones are not."""
    event, same, other = (
        change(mysql(payload, uuid="", change_type="INSERT")) for payload in ({"id": 1}, {"id": 1}, {"id": 2})
    )
    assert (event.event_id, event.ordering_key) == (same.event_id, same.ordering_key)
    assert event.event_id != other.event_id


@pytest.mark.parametrize("changed", [{}, {"log_file": "unknown"}], ids=["usable", "faulty"])
def test_one_uuid_in_two_tables_is_two_events(changed: dict[str, Any]) -> None:
    """Events are recognised by table and uuid, usable or not, and where shards share a table of the lake."""
    interpreter = Interpreter(DatastreamSettings("stream", table_name="{table}"))
    shards: tuple[dict[str, str], ...] = ({"database": "one"}, {"database": "two"}, {"table": "other"}, {})
    events = [mysql(change_type="INSERT", **changed, **shard) for shard in shards]
    event_ids = {interpreter.interpret(to_run(event)).event_id for event in events}
    assert event_ids == {"one.items/u-1", "two.items/u-1", "shop.other/u-1", "shop.items/u-1"}


@pytest.mark.parametrize(
    ("metadata", "template", "expected"),
    [
        ({}, None, "shop.items"),
        ({"table": "line-items_1"}, None, "shop.line-items_1"),
        ({"database": "a.b", "table": "c"}, None, '"a.b".c'),
        ({"database": "a", "table": "b.c"}, None, 'a."b.c"'),  # not the same table
        ({"database": "shard_7"}, "{table}", "items"),
        ({"database": "shard_7"}, "all_{table}", "all_items"),
    ],
)
def test_tables_are_named_by_metadata(metadata: dict[str, Any], template: str | None, expected: str) -> None:
    """Names come from the metadata, no two tables share one, and a template routes shards together."""
    assert expected == change(mysql(**metadata), table_name=template).table


@pytest.mark.parametrize("missing", ["database", "table"])
def test_an_event_without_its_table_is_a_fault(missing: str) -> None:
    """`object` is not a substitute: its parts cannot be separated."""
    event = mysql()
    del event["source_metadata"][missing]
    assert f"`{missing}` says None" in fault(event).reason


def test_same_table_in_two_schemas() -> None:
    """Tables of one name in two schemas stay apart."""
    tables = {change(oracle({"id": 1}, schema=schema)).table for schema in ("A", "B")}
    assert {"A.ITEMS", "B.ITEMS"} == tables


def test_columns_are_described_with_their_key() -> None:
    """The description of columns begins with the key and omits columns of which only NULL was seen."""
    listed = json.loads(change(mysql({"v": 10, "id": 1})).column_types)
    expected = [("id", "INT64", True, 1), ("v", "INT64", False, 2)]
    fields = ("name", "type", "is_primary_key", "ordinal_position")
    column_fields = [tuple(column[field] for field in fields) for column in listed]
    assert expected == [(name, kind["code"], is_key, at) for name, kind, is_key, at in column_fields]


def test_key_columns_may_differ_in_case() -> None:
    """SQL Server names the columns of its index in another case than the payload may have."""
    metadata = {"schema": "dbo", "table": "ORDERS", "lsn": "1:2:3", "replication_index": ["order_id"]}
    event = {**mysql({"ORDER_ID": 1}), "read_method": "sqlserver-cdc", "source_metadata": metadata}
    assert change(event).keys == '{"ORDER_ID":1}'


def test_a_declared_key_goes_before_the_events_own() -> None:
    """The setting `keys` wins, in alphabetical order of its columns."""
    event = mysql({"v": 1, "id": 2, "b": "x"})
    assert change(event, keys={"shop.items": ("v", "b")}).keys == '{"b":"x","v":1}'


@pytest.mark.parametrize("settings", [{}, {"keys": {"shop.items": ("h", "id")}}])
def test_the_key_has_the_order_in_which_it_is_named(settings: dict[str, Any]) -> None:
    """The payload may have the columns of the key in another order."""
    event = change(mysql({"id": 1, "v": 2, "h": 3}, primary_keys=["h", "id"]), **settings)
    listed = sorted(json.loads(event.column_types), key=lambda column: int(column["ordinal_position"]))
    assert [column["name"] for column in listed] == ["h", "id", "v"]


@pytest.mark.parametrize("payload", [{"v": 1}, {"id": None, "v": 1}])
def test_a_row_without_its_key_is_a_fault(payload: dict[str, Any]) -> None:
    """A key that is missing or NULL names no row."""
    assert "column of the key of `shop.items`: id" in fault(mysql(payload, change_type="UPDATE")).reason


def test_an_event_that_does_not_say_whether_there_is_a_key() -> None:
    """Old events name no key at all; that is not a table without a key, unless a setting says so."""
    event = mysql()
    del event["source_metadata"]["primary_keys"]
    assert "declare its key in `keys`" in fault(event).reason
    assert change(event, keys={"shop.items": ("id",)}).keys == '{"id":1}'
    assert change(event, keyless={"shop.items": "append"}).keys == '{"_event_id":"u-1"}'


@pytest.mark.parametrize(
    ("policy", "change_type", "expected"),
    [
        ("append", "INSERT", '{"_event_id":"u-1"}'),
        ("append", "UPDATE-INSERT", '{"_event_id":"u-1"}'),
        ("append", "DELETE", "the row that the event deletes is unknown"),
        ("row_hash", "INSERT", "_row_hash"),
        ("row_hash", "DELETE", "_row_hash"),
        ("row_hash", "UPDATE-INSERT", "does not state the row as it was"),
        ("refuse", "INSERT", "`keyless` refuses"),
    ],
)
def test_tables_without_a_key(policy: str, change_type: str, expected: str) -> None:
    """Each policy takes what it can know exactly, and the rest is a fault that says what to do."""
    event = meaning(mysql(primary_keys=[], change_type=change_type), keyless={"*": policy})
    text = event.keys if isinstance(event, SourceEvent) else event.reason
    assert expected in text
    assert isinstance(event, SourceEvent) or "declare one in `keys`" in text


def test_rows_are_known_by_their_values() -> None:
    """A delete finds the row by its values, also where the table got a column since that is still NULL."""
    sink = ReferenceSink()
    rows = ({"v": 1}, {"v": 2}, {"v": 2, "w": None})
    for place, (row, kind) in enumerate(zip(rows, ("INSERT", "INSERT", "DELETE"), strict=True)):
        event = mysql(row, primary_keys=[], change_type=kind, log_position=4 + place)
        sink.take([change(event, keyless={"*": "row_hash"})])
    assert list(sink.rows("shop.items").values()) == [{"v": 1}]


def test_oracle_has_both_halves_of_an_update_of_a_keyless_row() -> None:
    """With both halves an update of a row without a key is exact."""
    sink = ReferenceSink()
    for row, kind in (({"v": 1}, "INSERT"), ({"v": 1}, "UPDATE-DELETE"), ({"v": 2}, "UPDATE-INSERT")):
        event = oracle(row, primary_keys=[], change_type=kind, scn=7 + (kind != "INSERT"))
        sink.take([change(event, keyless={"*": "row_hash"})])
    assert list(sink.rows("SHOP.ITEMS").values()) == [{"v": 2}]


def test_a_delete_without_a_payload_needs_the_key_elsewhere() -> None:
    """The metadata's key is used if there is one; otherwise the event is a fault."""
    event = change(mysql({}, change_type="DELETE", primary_keys={"id": 1}))
    assert (event.mod_type, event.keys, event.column_types) == ("DELETE", '{"id":1}', "[]")
    assert "neither a payload nor the row's key" in fault(mysql({}, change_type="DELETE")).reason
    assert "has no payload" in fault(mysql({}, change_type="INSERT")).reason


@pytest.mark.parametrize("payload", [{}, {"v": 10}, {"id": None, "v": None}])
@pytest.mark.parametrize("as_object", [False, True])
def test_a_delete_whose_payload_lacks_the_key_is_known_by_its_metadata(
    payload: dict[str, Any], as_object: bool
) -> None:
    """The metadata's values name the row if the payload is missing, empty or without the key."""
    event = mysql(change_type="DELETE", primary_keys={"id": 1})
    envelope = replace(to_envelope({**event, "payload": payload}), has_payload=bool(payload) or as_object)
    actual = Interpreter(DatastreamSettings("stream")).interpret(envelope.as_run())
    assert isinstance(actual, SourceEvent), actual
    assert (actual.keys, actual.column_types, actual.old_values) == ('{"id":1}', "[]", None)


@pytest.mark.parametrize(
    ("metadata", "keys", "declared"),
    [
        ({"__id": 1}, '{"id_0dd4af":1}', ()),  # a name that no column of the lake can have
        ({"b": 2, "a": "x"}, '{"a":"x","b":2}', ()),
        ({"ID": 1, "other": 2}, '{"id":1}', ("id",)),
    ],
)
def test_a_key_of_the_metadata_has_the_names_of_the_lake(
    metadata: dict[str, Any], keys: str, declared: tuple[str, ...]
) -> None:
    """A row has one key, in any part of the event; the names are those of the payload's columns."""
    settings = {"keys": {"shop.items": declared}} if declared else {}
    deleted = change(mysql({}, change_type="DELETE", primary_keys=metadata), **settings)
    assert keys == deleted.keys
    assert json.loads(keys) == json.loads(
        change(mysql(metadata, primary_keys=list(metadata)), **settings).keys
    )


@pytest.mark.parametrize("payload", [{"ROWID": "AAA"}, {"id": None, "v": None}, {}])
def test_a_rollback_that_knows_its_row_by_rowid(payload: dict[str, Any]) -> None:
    """Oracle's inverse of an insert waits until the row's key is found; its text has all that this takes."""
    event = fault(oracle(payload, change_type="DELETE"))
    assert event.reason.startswith(ADDRESS_ONLY)
    metadata = json.loads(event.metadata or "")
    again = Interpreter(DatastreamSettings("stream")).interpret(from_text(event.text))
    assert isinstance(again, FaultyEvent)
    assert metadata == {**json.loads(again.metadata or ""), ADDRESS: "AAA"}
    assert metadata[ORDERING_KEY]
    assert event.source_micros == again.source_micros is not None


def test_null_may_stand_for_a_value_that_was_not_sent() -> None:
    """In a protected column an update's NULL leaves the value alone; elsewhere NULL is NULL."""
    protected = {"null_means_unchanged": {"shop.items": ("big",)}}
    payload = {"id": 1, "v": None, "big": None}
    event = change(mysql(payload, change_type="UPDATE"), **protected)
    assert (event.new_values, event.unavailable_columns) == ('{"v":null}', ("big",))
    inserted = change(mysql(payload, change_type="INSERT"), **protected)
    assert (inserted.new_values, inserted.unavailable_columns) == ('{"v":null,"big":null}', ())
    sent = change(mysql({**payload, "big": "x"}, change_type="UPDATE"), **protected)
    assert (sent.new_values, sent.unavailable_columns) == ('{"v":null,"big":"x"}', ())


@pytest.mark.parametrize("policy", ["evolve", "freeze", "quarantine"])
def test_names_that_the_lake_cannot_have(policy: str) -> None:
    """Names that differ in case, and reserved ones, get a digest or make the event a fault."""
    event = mysql({"id": 1, "Name": "a", "name": "b", "_pos": 3})
    actual = meaning(event, schema_policy={"shop.items": policy})
    if policy == "evolve":
        assert isinstance(actual, SourceEvent)
        expected = {"Name_dcd1d5": "a", "name_82a353": "b", "_pos_02d8de": 3}
        assert expected == json.loads(actual.new_values or "")
    else:
        assert isinstance(actual, FaultyEvent)
        assert f"`schema_policy` is {policy}: Name, _pos, name" in actual.reason


def test_a_key_keeps_its_name() -> None:
    """A column that differs from the key in case gets the digest, the key does not."""
    event = change(mysql({"id": 1, "ID": 2}))
    assert event.keys == '{"id":1}'
    (name,) = json.loads(event.new_values or "")
    assert name.startswith("ID_")


def test_a_sequence_of_the_users_own() -> None:
    """Where a column orders the events, places do not count, and an event without it is a fault."""
    settings = {"sequence_columns": {"*": "seq"}}
    older = change(mysql({"id": 1, "seq": "FFF/B"}, log_position=900), **settings)
    newer = change(mysql({"id": 1, "seq": "FFF/ABC"}, log_position=4), **settings)
    assert older.ordering_key < newer.ordering_key
    assert "sequence_columns" in fault(mysql({"id": 1, "seq": None}), **settings).reason
    assert "one to four sections" in fault(mysql({"id": 1, "seq": "G"}), **settings).reason


def test_layouts_follow_the_schema() -> None:
    """Events of one table with other columns, or with another key, are read by their own layout."""
    interpreter = Interpreter(DatastreamSettings("stream"))
    events = [
        mysql({"id": 1, "v": 2}),
        mysql({"id": 1, "w": "x", "v": 2}),
        mysql({"id": 1, "v": 2}, primary_keys=["v"]),
        mysql({"id": 1, "v": 2}),
    ]
    actual = [interpreter.interpret(to_run(event)) for event in events]
    keys = [event.keys for event in actual if isinstance(event, SourceEvent)]
    assert keys == ['{"id":1}', '{"id":1}', '{"v":2}', '{"id":1}']
    assert actual[0] == actual[3]
