import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.schemas import RAW_CHANGE_RECORDS
from cdc_platform.model.base.timestamps import from_rfc3339, to_rfc3339
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.spanner.stream import batches
from cdc_platform.sources.spanner.stream.batches import RecordBatchBuilder, to_batch
from cdc_platform.sources.spanner.stream.decode import DATA_FIELDS, check_layout, decode_change_record
from cdc_platform_tests.sources.spanner.fake_server import (
    Plain,
    change_record_type,
    change_row,
    child_record,
    data_record,
    to_value,
)

T1 = "2026-11-21T06:00:01.000001Z"
T2 = "2026-11-21T06:00:02.123456789Z"
MICROS = from_rfc3339("2026-11-21T06:00:00Z")
SECOND = 1_000_000


def encoded(plain: Plain) -> bytes:
    """Return the value as bytes."""
    value: bytes = to_value(plain).SerializeToString()
    return value


def rows_of(plain: Plain) -> list[dict[str, object]]:
    """Return the records of a row of the query, the way through Arrow and back."""
    batch = to_batch(7, "token", [tuple(row) for row in decode_change_record(encoded(plain))])
    assert batch.schema == RAW_CHANGE_RECORDS
    rows: list[dict[str, object]] = batch.cast(RAW_CHANGE_RECORDS).to_pylist()
    return rows


def named(row: dict[str, object]) -> dict[str, object]:
    """Return the columns of a row that are not null."""
    return {name: value for name, value in row.items() if value is not None}


def test_data_change_record_keeps_every_field() -> None:
    """Each field of a data change record arrives in its column."""
    mods: Plain = [['{"id":"1"}', '{"balance":"5"}', None], ['{"id":"2"}', "", "{}"]]
    columns: Plain = [["id", '{"code":"INT64"}', True, "1"]]
    record: Plain = [
        *(T2, "0000000a", "tx", False, "accounts", columns, mods),
        *("INSERT", "NEW_ROW", "3", "2", "tag", True),
    ]

    (row,) = rows_of(change_row(data=[record]))

    assert str(row.pop("record_timestamp")) == "2026-11-21 06:00:02.123456+00:00"
    assert json.loads(str(row.pop("column_types"))) == [
        {"name": "id", "type": {"code": "INT64"}, "is_primary_key": True, "ordinal_position": 1},
    ]
    assert named(row) == {
        "cycle": 7,
        "kind": "data_change",
        "partition_token": "token",
        "record_sequence": "0000000a",
        "record_order": "0" * 31 + "a",
        "server_transaction_id": "tx",
        "is_last_record_in_transaction_in_partition": False,
        "table_name": "accounts",
        "mod_type": "INSERT",
        "value_capture_type": "NEW_ROW",
        "mods": [
            {"keys": '{"id":"1"}', "new_values": '{"balance":"5"}', "old_values": None},
            {"keys": '{"id":"2"}', "new_values": "", "old_values": "{}"},
        ],
        "number_of_records_in_transaction": 3,
        "number_of_partitions_in_transaction": 2,
        "transaction_tag": "tag",
        "is_system_transaction": True,
    }


def test_control_records_keep_every_field() -> None:
    """Heartbeats and child partitions arrive with their timestamps, tokens and parents."""
    child: Plain = [T2, "00000002", [["c1", ["a", "b"]], ["c2", [None]], ["c3", []]]]

    heartbeat, children = rows_of(change_row(heartbeats=[T1], children=[child]))

    assert (heartbeat["kind"], str(heartbeat["record_timestamp"])) == (
        "heartbeat",
        "2026-11-21 06:00:01.000001+00:00",
    )
    assert (heartbeat["mods"], heartbeat["child_partitions"]) == (None, None)
    assert (children["kind"], children["record_sequence"]) == ("child_partitions", "00000002")
    assert children["child_partitions"] == [
        {"token": "c1", "parent_partition_tokens": ["a", "b"]},
        {"token": "c2", "parent_partition_tokens": [""]},
        {"token": "c3", "parent_partition_tokens": []},
    ]


@pytest.mark.parametrize("values", ["not json", "{", '{"a":1}}', "\\", '"', "日本", "x" * 100_000])
def test_mod_that_is_not_json_passes_as_text(values: str) -> None:
    """Decoding looks into no mod; what is wrong with one is found later, and for that record alone."""
    (row,) = rows_of(change_row(data=[data_record(T1, mods=[("{}", values, None)])]))

    assert row["mods"] == [{"keys": "{}", "new_values": values, "old_values": None}]


@pytest.mark.parametrize("table", ["a`b", 'a"b', "a/b", "schema.table", "a'b", " "])
def test_any_table_name_passes(table: str) -> None:
    """Names with quotes, slashes and dots arrive as they are."""
    assert [table] == [row["table_name"] for row in rows_of(change_row(data=[data_record(T1, table=table)]))]


@pytest.mark.parametrize(
    "plain",
    [
        "text",
        [["text"]],
        [[[], []]],  # a kind is missing
        [[[["x"]], [], []]],  # a data change record of one field
        change_row(data=[data_record("yesterday")]),
        change_row(data=[data_record("0001-01-01T00:00:00+14:00")]),
        change_row(heartbeats=["never"]),
        change_row(children=[child_record(T1, "")]),
        [[[[T1, "0", 5, True]], [], []]],  # a data change record without its transaction
    ],
)
def test_unknown_place_is_an_error(plain: Plain) -> None:
    """A record that does not state its place in the stream stops the window and is in the message."""
    with pytest.raises(RecordUnreadable, match="documented shape"):
        decode_change_record(encoded(plain))


def _fields(count: int = len(DATA_FIELDS)) -> list[Any]:
    record: Any = data_record(T1)
    return list(record[:count])


@pytest.mark.parametrize(
    ("record", "table"),
    [
        (data_record(T1, mods=[('{"id":"1"}', "{}")]), "accounts"),
        (data_record(T1, records="one"), "accounts"),
        (_fields(4), None),
        ([*_fields(4), 5, *_fields()[5:]], None),
    ],
)
def test_malformed_record_of_a_known_transaction_is_a_fault(record: Any, table: str | None) -> None:
    """It has no type and no count, its mod has the record with what is wrong; its neighbours are whole."""
    good = data_record(T1)
    first, bad, last = rows_of(change_row(data=[good, record, good]))

    assert first == last
    assert (bad["record_timestamp"], bad["server_transaction_id"]) == (first["record_timestamp"], "t1")
    assert (table, None, None) == (
        bad["table_name"],
        bad["mod_type"],
        bad["number_of_records_in_transaction"],
    )
    mods: Any = bad["mods"]
    assert mods[0]["keys"] is None
    assert T1 in mods[0]["new_values"]
    assert mods[0]["old_values"]


def test_broken_bytes_are_an_error() -> None:
    """Any malformed record is read, or refused with the one documented error."""
    whole = encoded(change_row(data=[data_record(T1)], heartbeats=[T1], children=[child_record(T1, "c")]))
    bent = [
        whole[:place] + bytes([byte]) + whole[place + 1 :]
        for place in range(len(whole))
        for byte in (0, 17, 255)
    ]
    for record in [whole[:length] for length in range(len(whole))] + bent:
        with suppress(RecordUnreadable):
            to_batch(7, "token", [tuple(row) for row in decode_change_record(record)])


def test_layout_may_grow_but_not_change() -> None:
    """Fields that are appended do no harm; fields at other places are found before they are misread."""
    check_layout(change_record_type([*DATA_FIELDS, "new_field"]).fields)

    swapped = [DATA_FIELDS[1], DATA_FIELDS[0], *DATA_FIELDS[2:]]
    with pytest.raises(RecordUnreadable, match="other fields"):
        check_layout(change_record_type(swapped).fields)


def builder(*rows: Plain, seconds: int = 60) -> RecordBatchBuilder:
    """Return a builder of the window of so many seconds that has these rows."""
    builder = RecordBatchBuilder(1, ReadWindow("token", MICROS, MICROS + seconds * SECOND))
    for row in rows:
        builder.add(decode_change_record(encoded(row)))
    return builder


def data_at(second: int, transaction: str = "t") -> Plain:
    """Return a row with a data change record at a second of the window."""
    return change_row(data=[data_record(to_rfc3339(MICROS + second * SECOND), transaction)])


def heartbeat_at(second: int) -> Plain:
    """Return a row with a heartbeat at a second of the window."""
    return change_row(heartbeats=[to_rfc3339(MICROS + second * SECOND)])


@pytest.mark.parametrize(
    ("rows", "complete", "count"),
    [
        ([], 0, 0),
        ([data_at(2)], 2 * SECOND - 1, 0),  # more records of that timestamp may follow
        ([data_at(2), data_at(2)], 2 * SECOND - 1, 0),
        ([data_at(2), data_at(3)], 3 * SECOND - 1, 1),
        ([data_at(2), heartbeat_at(2)], 2 * SECOND, 2),  # a heartbeat says that none does
        ([heartbeat_at(5), data_at(9)], 9 * SECOND - 1, 1),
        ([data_at(2), data_at(70)], 60 * SECOND, 1),  # after the end of the window
    ],
)
def test_complete_is_what_no_record_can_join(rows: Sequence[Plain], complete: int, count: int) -> None:
    """A timestamp is complete once a later record or a heartbeat at it has come."""
    actual = builder(*rows)

    assert MICROS + complete == actual.complete_micros
    assert count == actual.take_complete().num_rows


@pytest.mark.parametrize(
    ("rows", "is_full"),
    [
        ([data_at(2)], False),
        ([data_at(2)] * 5, False),  # a large transaction, of which nothing can leave
        ([*[data_at(2)] * 5, data_at(3)], True),
        ([*[data_at(2)] * 5, heartbeat_at(2)], True),
    ],
)
def test_a_batch_is_full_of_complete_records(
    rows: Sequence[Plain], is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No batch is taken for each further record of a timestamp that is incomplete."""
    monkeypatch.setattr(batches, "RECORDS_PER_BATCH", 2)
    assert is_full == builder(*rows).is_full


def test_incomplete_records_can_be_read_again() -> None:
    """After a failure the records of the last timestamp are dropped, and come once in the end."""
    actual = builder(data_at(2, "a"), data_at(3, "b"))

    actual.forget_incomplete()
    actual.add(decode_change_record(encoded(data_at(3, "b"))))

    assert actual.take_all()["server_transaction_id"].to_pylist() == ["a", "b"]
    assert actual.counts["data_change"] == 2


def test_child_after_the_end_is_not_seen() -> None:
    """A partition that ends after the window has not finished in it."""
    late = change_row(children=[child_record("2026-11-21T06:00:10.000001Z", "c", "token")])

    assert builder(late, seconds=10).child_micros is None
    assert builder(late, seconds=11).child_micros == MICROS + 10 * SECOND + 1
