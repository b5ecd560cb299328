"""Change records that are messages: one a row, of the type `google.spanner.v1.ChangeStreamRecord`."""

import json
from base64 import b64decode, b64encode
from typing import Any, Final

import pytest
from google.cloud.spanner_v1.types import ChangeStreamRecord, StructType, Type, TypeCode
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.errors import RecordUnreadable
from cdc_platform.simulator.wire.simulator_settings import PartitionMode
from cdc_platform.sources.spanner.stream.batches import to_batch
from cdc_platform.sources.spanner.stream.message_records import (
    MESSAGE_PREFIX,
    decode_message,
    has_messages,
)
from cdc_platform.sources.spanner.stream.reader import decode_again
from cdc_platform.sources.spanner.stream.record_rows import DATA, END, EVENT, HEARTBEAT, START
from cdc_platform_tests.simulator.histories import ORIGIN, SECOND, simulated
from cdc_platform_tests.sources.spanner.fake_server import to_value
from cdc_platform_tests.sources.spanner.messages import (
    COMMIT,
    ORDER,
    PLACED,
    SEQUENCE,
    data_record,
    message_of,
    message_value,
    value_of,
)

VALUES: Final = st.recursive(
    st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | st.just("Ä" * 9000),
    lambda inner: st.lists(inner | st.none(), max_size=3),
    max_leaves=4,
)


def rows_of(**record: Any) -> list[dict[str, Any]]:
    """Return the records of a row, the way through Arrow and back, without what they do not have."""
    batch = to_batch(7, "token", [tuple(row) for row in decode_message(value_of(**record), "token")])
    rows: list[dict[str, Any]] = batch.to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def test_data_change_record_keeps_every_field() -> None:
    """Columns and values are those of the other forms: names in the place of indexes, JSON texts."""
    (row,) = rows_of(data_change_record=data_record())
    assert json.loads(row.pop("column_types")) == [
        {"name": "Id", "type": {"code": "INT64"}, "is_primary_key": True, "ordinal_position": 1},
        {
            "name": "n",
            "type": {"code": "NUMERIC", "type_annotation": "PG_NUMERIC"},
            "is_primary_key": False,
            "ordinal_position": 3,
        },
        {
            "name": "a",
            "type": {"code": "ARRAY", "array_element_type": {"code": "PROTO", "proto_type_fqn": "x.Y"}},
            "is_primary_key": False,
            "ordinal_position": 2,
        },
    ]
    assert row == {
        "cycle": 7,
        "kind": DATA,
        "partition_token": "token",
        "record_timestamp": COMMIT,
        "record_sequence": SEQUENCE,
        "record_order": ORDER,
        "server_transaction_id": "t1",
        "is_last_record_in_transaction_in_partition": False,
        "table_name": "accounts",
        "mod_type": "INSERT",
        "value_capture_type": "NEW_ROW",
        "mods": [{"keys": '{"Id":"1"}', "new_values": '{"a":["cHI=",null],"n":"1.50"}', "old_values": "{}"}],
        "number_of_records_in_transaction": 2,
        "number_of_partitions_in_transaction": 1,
        "transaction_tag": "tag",
        "is_system_transaction": False,
    }


@given(st.dictionaries(st.sampled_from([0, 1, 127, 128, 300]), VALUES, max_size=3))
@settings(max_examples=25, deadline=None)
def test_values_are_those_of_the_message(values: dict[int, Any]) -> None:
    """Any value of any column becomes JSON, for any length and number of columns."""
    columns = [{"name": f'c "{number}"', "type_": {"code": "STRING"}} for number in range(301)]
    members = [{"column_metadata_index": index, "value": value} for index, value in values.items()]
    mod = {"keys": members[:1], "new_values": members, "old_values": members[1:]}
    (row,) = rows_of(data_change_record=data_record(column_metadata=columns, mods=[mod]))
    expected = {f'c "{index}"': value for index, value in values.items()}
    assert expected == json.loads(row["mods"][0]["new_values"])
    assert expected == {name: value for part in ("keys", "old_values") for name, value in _part(row, part)}


def _part(row: dict[str, Any], name: str) -> Any:
    return json.loads(row["mods"][0][name]).items()


def test_both_modes_have_the_same_records() -> None:
    """The records of a history with every type differ between the modes in their sequences alone."""
    rows, chosen = [], {"seed": 5, "partitions": 1, "partition_life_s": 60, "all_types": True}
    for mode in PartitionMode:
        database = simulated(3, partition_mode=mode, **chosen)
        (partition,) = database.history.tree.live_at(ORIGIN)
        read = database.records(partition.token, ORIGIN, ORIGIN + 3 * SECOND)
        rows.append(
            [
                {**record._asdict(), "record_sequence": None, "record_order": None}
                for record in read
                if record.kind == DATA
            ]
        )
    assert len(rows[0]) == len(rows[1]) > 100
    for immutable, mutable in zip(*rows, strict=True):
        for part in ("mods", "column_types"):
            immutable[part], mutable[part] = (_parsed(row[part]) for row in (immutable, mutable))
        assert immutable == mutable


def _parsed(value: Any) -> Any:
    """Return JSON as its meaning; an unknown type has its number in a message."""
    texts = [value] if isinstance(value, str) else value
    return [text and json.loads(text.replace('"99"', '"HOLOGRAM"')) for text in texts]


def test_partition_records() -> None:
    """Starts, moves and ends of partitions are rows of their own kinds, with their tokens."""
    about = {"commit_timestamp": COMMIT, "record_sequence": SEQUENCE, "partition_token": "token"}
    moves = {
        "move_in_events": [{"source_partition_token": "a"}, {"source_partition_token": "b"}],
        "move_out_events": [{"destination_partition_token": "c"}],
    }
    common = {"cycle": 7, "partition_token": "token", "record_timestamp": COMMIT}
    placed = {**common, "record_sequence": SEQUENCE, "record_order": ORDER}
    start = {"start_timestamp": COMMIT, "record_sequence": SEQUENCE, "partition_tokens": ["a", "b"]}
    end = {"end_timestamp": COMMIT, "record_sequence": SEQUENCE, "partition_token": "token"}

    def partition(token: str, *before: str) -> dict[str, Any]:
        return {"token": token, "parent_partition_tokens": list(before)}

    assert rows_of(heartbeat_record={"timestamp": COMMIT}) == [{**common, "kind": HEARTBEAT}]
    assert rows_of(partition_start_record=start) == [
        {**placed, "kind": START, "child_partitions": [partition("a"), partition("b")]}
    ]
    assert rows_of(partition_end_record=end) == [{**placed, "kind": END}]
    moved = [partition("token", "a"), partition("token", "b"), partition("c", "token")]
    assert rows_of(partition_event_record=about | moves) == [
        {**placed, "kind": EVENT, "child_partitions": moved}
    ]


@pytest.mark.parametrize(
    "record",
    [
        {"heartbeat_record": {}},  # no moment
        {"partition_start_record": {"start_timestamp": COMMIT, **PLACED, "partition_tokens": [""]}},
        {"partition_start_record": {"start_timestamp": COMMIT, "partition_tokens": ["a"]}},  # no sequence
        {"partition_end_record": {**PLACED, "partition_token": "token"}},
        # of another partition than was asked for
        {"partition_end_record": {"end_timestamp": COMMIT, **PLACED, "partition_token": "b"}},
        {"partition_event_record": {"commit_timestamp": COMMIT, **PLACED, "partition_token": "b"}},
        {"data_change_record": data_record(server_transaction_id="")},
        {"data_change_record": data_record(commit_timestamp=None, table="")},  # a fault of no known moment
        {},  # a kind that this version does not know
    ],
)
def test_records_of_another_shape_are_unreadable(record: dict[str, Any]) -> None:
    """A record that is not understood stops the window; it is never passed over."""
    with pytest.raises(RecordUnreadable, match="undocumented shape"):
        decode_message(value_of(**record), "token")


@given(st.binary(max_size=60) | st.text(max_size=20))
def test_any_other_value_is_unreadable_or_a_record(content: bytes | str) -> None:
    """No bytes make another error than the one that says what to do."""
    text = content if isinstance(content, str) else b64encode(content).decode()
    try:
        rows = decode_message(to_value(text).SerializeToString(), "token")
    except RecordUnreadable:
        return
    assert len(rows) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"table": ""},
        {"mods": [{"keys": [{"column_metadata_index": 3, "value": "1"}]}]},
        {"mods": [{"keys": [{"column_metadata_index": -1, "value": "1"}]}]},
        {"mods": [{"keys": [{"column_metadata_index": 0, "value": float("inf")}]}]},
        {"column_metadata": [{"name": "", "is_primary_key": True, "type_": {"code": "INT64"}}]},
        {"record_sequence": ""},
    ],
)
def test_a_malformed_record_is_a_fault(changes: dict[str, Any]) -> None:
    """It keeps its moment and its transaction, has no keys, and still gives no record when asked again."""
    (row,) = rows_of(data_change_record=data_record(**changes))
    assert (row["record_timestamp"], row["server_transaction_id"]) == (COMMIT, "t1")
    (mod,) = row["mods"]
    assert "keys" not in {name for name, part in mod.items() if part is not None}
    assert decode_again(7, "token", "s", mod["new_values"]) is None


def test_fields_of_a_value_in_another_order_are_a_fault() -> None:
    """The index of a column that comes after its value is not overlooked: it would be that of another one."""
    index, value = b"\x08\x01", b"\x12\x06\x1a\x041.50"
    message = message_of(data_change_record=data_record())
    assert message.count(index + value) == 1
    (record,) = decode_message(message_value(message.replace(index + value, value + index)), "token")
    assert record.mods is not None
    assert record.mods[0] is None


def test_a_fault_is_decoded_again() -> None:
    """The text that is kept of a malformed record is all of it, for a version that knows its shape."""
    (fault,) = rows_of(data_change_record=data_record(table=""))
    text = b64decode(fault["mods"][0]["new_values"].removeprefix(MESSAGE_PREFIX))
    record = ChangeStreamRecord.DataChangeRecord.deserialize(text)
    record.table = "accounts"
    record_text = b64encode(ChangeStreamRecord.DataChangeRecord.serialize(record)).decode()
    batch = decode_again(7, "token", "its own", f"{MESSAGE_PREFIX}{record_text}")
    assert batch is not None
    (row,) = batch.to_pylist()
    (expected,) = rows_of(data_change_record=data_record())
    present = {name: value for name, value in row.items() if value is not None}
    assert {**expected, "record_sequence": "its own"} == present


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "MOD_TYPE_UNSPECIFIED"), (20, "UPDATE"), (77, "77")], ids=str
)
def test_unknown_types_of_mods_pass(number: int, expected: str) -> None:
    """A number that this version of the API does not name passes as text: the log judges it."""
    (row,) = rows_of(data_change_record=data_record(mod_type=number))
    assert expected == row["mod_type"]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(7.0, "7"), (-3.0, "-3"), (1.5, "1.5"), (-0.0, "-0.0"), (1e300, "1e+300")],
    ids=str,
)
def test_whole_numbers_have_no_fraction(number: float, expected: str) -> None:
    """A message holds every number as a double; a whole one is written as in the other mode."""
    value = {"column_metadata_index": 1, "value": number}
    mod = {"keys": [{"column_metadata_index": 0, "value": "1"}], "new_values": [value]}
    (row,) = rows_of(data_change_record=data_record(mods=[mod]))
    assert row["mods"][0]["new_values"] == f'{{"n":{expected}}}'


@pytest.mark.parametrize(
    ("codes", "expected"), [(["PROTO"], True), (["BYTES"], True), (["JSON"], False), (["BYTES"] * 2, False)]
)
def test_messages_are_known_by_their_column(codes: list[str], expected: bool) -> None:
    """One column of PROTO or BYTES has messages, in either dialect."""
    fields = [StructType.Field(name="x", type_=Type(code=TypeCode[code])) for code in codes]
    assert expected is has_messages(fields)
    assert has_messages(None) is False
