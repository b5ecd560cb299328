"""Change records of a PostgreSQL database: one JSON object a row."""

import json
from typing import Any

import pytest
from google.cloud.spanner_v1.types import StructType, Type, TypeCode
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.schemas import RAW_CHANGE_RECORDS
from cdc_platform.model.base.timestamps import from_datetime, from_rfc3339
from cdc_platform.sources.spanner.stream.batches import to_batch
from cdc_platform.sources.spanner.stream.json_records import check_json_layout, decode_json_record
from cdc_platform_tests.sources.spanner.fake_server import json_data_record, to_value
from cdc_platform_tests.strategies import TEXTS

COMMIT = "2026-11-21T06:00:01.000001Z"


COLUMN = {"is_primary_key": True, "name": "Id", "ordinal_position": 1, "type": {"code": "INT64"}}
CHILDREN = {"start_timestamp": COMMIT, "record_sequence": "00000002"}


def child(token: Any, *parents: Any) -> dict[str, Any]:
    """Return a child partition."""
    return {"token": token, "parent_partition_tokens": list(parents)}


def nested(depth: int) -> Any:
    """Return an array of arrays."""
    return json.loads("[" * depth + "]" * depth)


def rows_of(record: Any) -> list[dict[str, Any]]:
    """Return the records of a row of the query, the way through Arrow and back."""
    value: bytes = to_value(record if isinstance(record, str) else json.dumps(record)).SerializeToString()
    batch = to_batch(7, "token", [tuple(row) for row in decode_json_record(value)])
    assert batch.schema == RAW_CHANGE_RECORDS
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def test_data_change_record_keeps_every_field() -> None:
    """Each field of a data change record arrives in its column, mods as JSON texts."""
    column = {"is_primary_key": True, "name": "Id", "ordinal_position": 1, "type": {"code": "INT64"}}
    mods = [
        {"keys": {"Id": "1"}, "new_values": {"n": "1.50", "f": 0.1, "a": [None, "é"]}, "old_values": {}},
        {"keys": {"Id": "2"}, "new_values": {}, "old_values": {"n": None}},
    ]
    record = json_data_record("2026-11-21T08:00:02.123456789+02:00", column_types=[column], mods=mods)

    (row,) = rows_of(record)

    assert from_rfc3339("2026-11-21T06:00:02.123456Z") == from_datetime(row.pop("record_timestamp"))
    assert [column] == json.loads(row.pop("column_types"))
    assert {name: value for name, value in row.items() if value is not None} == {
        "cycle": 7,
        "kind": "data_change",
        "partition_token": "token",
        "record_sequence": "00000000",
        "record_order": "0" * 32,
        "server_transaction_id": "t1",
        "is_last_record_in_transaction_in_partition": True,
        "table_name": "accounts",
        "mod_type": "UPDATE",
        "value_capture_type": "NEW_ROW",
        "mods": [
            {"keys": '{"Id":"1"}', "new_values": '{"n":"1.50","f":0.1,"a":[null,"é"]}', "old_values": "{}"},
            {"keys": '{"Id":"2"}', "new_values": "{}", "old_values": '{"n":null}'},
        ],
        "number_of_records_in_transaction": 1,
        "number_of_partitions_in_transaction": 1,
        "transaction_tag": "",
        "is_system_transaction": False,
    }


@pytest.mark.parametrize("moment", ["2026-11-21T06:00:01.000001Z", "2026-11-21T07:00:01.000001+01:00"])
def test_control_records_keep_every_field(moment: str) -> None:
    """Timestamps may have an offset or be in UTC; children of the first query have no parents."""
    children: list[dict[str, object]] = [
        {"token": "c1", "parent_partition_tokens": ["a", None]},
        {"token": "c2", "parent_partition_tokens": []},
    ]
    (heartbeat,) = rows_of({"heartbeat_record": {"timestamp": moment}})
    (child,) = rows_of(
        {
            "child_partitions_record": {
                "start_timestamp": moment,
                "record_sequence": "00000002",
                "child_partitions": children,
            }
        }
    )

    expected = from_rfc3339(COMMIT)
    assert ("heartbeat", expected) == (heartbeat["kind"], from_datetime(heartbeat["record_timestamp"]))
    assert ("child_partitions", expected) == (child["kind"], from_datetime(child["record_timestamp"]))
    assert child["child_partitions"] == [
        {"token": "c1", "parent_partition_tokens": ["a", ""]},
        {"token": "c2", "parent_partition_tokens": []},
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(values=st.dictionaries(TEXTS, JSON, max_size=5))
def test_values_of_a_mod_are_kept(values: dict[str, Any]) -> None:
    """For any JSON of a mod, its text has the same content afterwards."""
    mod = {"keys": values, "new_values": values, "old_values": values}

    (row,) = rows_of(json_data_record(COMMIT, mods=[mod]))

    assert [values] * 3 == [json.loads(text) for text in row["mods"][0].values()]


@pytest.mark.parametrize(
    "record",
    [
        "not json",
        "[]",
        "{}",
        {"heartbeat_record": {}},
        {"heartbeat_record": {"timestamp": "never"}},
        {"another_record": {"timestamp": COMMIT}},
        {"heartbeat_record": {"timestamp": COMMIT}, "data_change_record": {}},
        {"data_change_record": {"commit_timestamp": COMMIT}},
        json_data_record(COMMIT, server_transaction_id=5),
        json_data_record("never"),
        '{"data_change_record":' + "[" * 100_000,
        {"child_partitions_record": {**CHILDREN, "child_partitions": [{"token": "a"}]}},
        {"child_partitions_record": {**CHILDREN, "child_partitions": [child("\ud800")]}},
        {"child_partitions_record": {**CHILDREN, "child_partitions": [child("a", 5)]}},
        {"child_partitions_record": {**CHILDREN, "child_partitions": [child("")]}},
    ],
)
def test_unknown_place_is_an_error(record: Any) -> None:
    """A record that does not state its place in the stream stops the window and is in the message."""
    with pytest.raises(RecordUnreadable, match=r"documented shape.*report it"):
        rows_of(record)


@pytest.mark.parametrize(
    "record",
    [
        json_data_record(COMMIT, mods=None),
        json_data_record(COMMIT, table_name=5),
        json_data_record(COMMIT, value_capture_type=["NEW_ROW"]),
        json_data_record(COMMIT, is_system_transaction="no"),
        json_data_record(COMMIT, number_of_records_in_transaction=[1]),
        json_data_record(COMMIT, column_types=[{**COLUMN, "ordinal_position": True}]),
        json_data_record(COMMIT, column_types=[{**COLUMN, "name": None}]),
        json_data_record(COMMIT, column_types=[float("inf")]),
        json_data_record(COMMIT, column_types=nested(900)),
        json_data_record(COMMIT, mods=nested(900)),
    ],
)
def test_malformed_record_of_a_known_transaction_is_a_fault(record: dict[str, Any]) -> None:
    """It has no type and no count, and the record with what is wrong is in its mod."""
    (row,) = rows_of(record)

    fields = record["data_change_record"]
    table = fields["table_name"]
    assert (row["table_name"], row["server_transaction_id"]) == (
        table if isinstance(table, str) else None,
        "t1",
    )
    assert (row["mod_type"], row["number_of_records_in_transaction"]) == (None, None)
    (mod,) = row["mods"]
    assert mod["keys"] is None
    assert fields == json.loads(mod["new_values"])
    assert mod["old_values"]


HALF = "\ud800"


@pytest.mark.parametrize(
    "changes",
    [
        {"table_name": HALF},
        {"transaction_tag": HALF},
        {"server_transaction_id": HALF},
        {"mods": [{"keys": {"id": HALF}, "new_values": {}, "old_values": {}}]},
        {"mods": [{"keys": {}, "new_values": {HALF: "1"}, "old_values": {}}]},
        {"column_types": [{**COLUMN, "type": {"code": HALF}}]},
        {"number_of_records_in_transaction": 10**20},
        {"number_of_partitions_in_transaction": -(10**20)},
    ],
)
def test_a_value_that_nothing_can_hold_is_one_fault(changes: dict[str, Any]) -> None:
    """It has safe texts, no columns, and no count, for which the log refuses it; its neighbours are whole."""
    good = json_data_record(COMMIT)
    records = [good, json_data_record(COMMIT, **changes), good]
    rows = [decode_json_record(to_value(json.dumps(record)).SerializeToString())[0] for record in records]

    first, bad, last = to_batch(7, "token", [tuple(row) for row in rows]).to_pylist()

    assert first == last
    assert (bad["number_of_records_in_transaction"], bad["column_types"]) == (None, None)
    assert json.dumps(bad["mods"]).encode()
    assert first == rows_of(good)[0]


def test_layout_is_one_column_of_json() -> None:
    """Columns of other types are found before they are misread."""
    record = StructType.Field(name="read_json_s", type_=Type(code=TypeCode.JSON))
    check_json_layout([record])

    with pytest.raises(RecordUnreadable, match="INT64"):
        check_json_layout([record, StructType.Field(name="n", type_=Type(code=TypeCode.INT64))])
