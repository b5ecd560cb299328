"""Messages become changes, or faults that say what to do: what captures do not have, written by hand."""

import json
from typing import Any, Final

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.model.rows.keyless import is_keyless
from cdc_platform.model.stream.events import SourceEvent, SourceMessage
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER, NullPolicy
from cdc_platform.sources.debezium.wire.message_contents import (
    Heartbeat,
    Signal,
    TransactionBegin,
    TransactionEnd,
)
from cdc_platform_tests.sources.debezium.written_events import (
    COLUMNS,
    TABLE,
    decode_all,
    envelope,
    line,
    only_event,
    only_fault,
    settings_with,
)

ROW: Final[dict[str, Any]] = {"id": 1, "n": 2, "big": "x", "xs": [1]}
KEY: Final = {"id": 1}
MARKED: Final[dict[str, Any]] = {**ROW, "big": DEFAULT_PLACEHOLDER}


def update(**rest: Any) -> str:
    """Return the line of an update."""
    return line(envelope("u", **{"after": ROW, **rest}), KEY)


def order(event: SourceEvent) -> str:
    """Return the key of order without the position of the message, which ends it."""
    return event.ordering_key.rpartition(" ")[0]


def test_an_update() -> None:
    """Keys, values, order, transaction and moment come from the row and its source."""
    event = only_event(update(after=MARKED, transaction={"id": "7:500", "total_order": 3}))
    expected = (TABLE, ModType.UPDATE, '{"id":1}')
    assert expected == (event.table, event.mod_type, event.keys)
    assert event.new_values == '{"n":2,"xs":[1]}'
    assert event.unavailable_columns == ("big",)
    assert order(event) == "0000000000000190 00000000000001f4 0000000003 1"
    assert event.transaction_id == "7"
    assert event.source_micros == 1_700_000_000_000_000
    types = {column["name"]: column["type"]["code"] for column in json.loads(event.column_types)}
    codes = {"id": "INT64", "n": "INT64", "big": "STRING", "xs": "ARRAY"}
    assert codes == types


def test_the_event_of_the_article() -> None:
    """A connector from before there were sequences: its events are in order for each key."""
    source: dict[str, Any] = {
        "version": "0.10.0.Final",
        "sequence": None,
        "lsn": 34650016,
        "txId": 627,
        "ts_ms": 1570448151151,
    }
    row = {"id": 1004, "first_name": "Dana", "biography": DEFAULT_PLACEHOLDER}
    columns = {TABLE: {"id": "integer", "first_name": "varchar(255)", "biography": "text"}}
    value = envelope("u", after=row, source=source)
    alone = only_event(json.dumps(value), columns=columns, keys={TABLE: ("id",)})
    expected = ("biography",)
    assert expected == alone.unavailable_columns
    assert alone.new_values == '{"first_name":"Dana"}'
    source["lsn"] += 1
    later = only_event(line(envelope("u", after=row, source=source), {"id": 1004}), columns=columns)
    assert order(alone) < order(later)


def test_a_value_alone_needs_its_keys_declared() -> None:
    """Nothing in an event says which columns are the key, but its own key; a table may have none."""
    alone = json.dumps(envelope("u", before=ROW, after={**ROW, "n": 3}))
    reason = only_fault(alone).reason
    assert f"`keys: {{{TABLE}: [COLUMN, ...]}}`" in reason
    assert f"`keys: {{{TABLE}: []}}`" in reason
    (changed,) = decode_all(alone, keys={TABLE: ("id",)}, full_identity=(TABLE,))
    assert isinstance(changed, SourceEvent)
    assert changed.keys == '{"id":1}'
    lost, gained = decode_all(alone, keys={TABLE: ()})
    assert isinstance(lost, SourceEvent)
    assert isinstance(gained, SourceEvent)
    assert is_keyless(lost.keys)
    assert (lost.mod_type, gained.mod_type) == (ModType.DELETE, ModType.INSERT)


@pytest.mark.parametrize("op", ["c", "u", "r", "d"])
def test_a_block_of_the_key_alone_takes_no_column_away(op: str) -> None:
    """Kafka Connect's converters are set up apart, and only that of keys may send blocks."""
    block = {"type": "struct", "fields": [{"field": "id", "type": "int64", "optional": False}]}
    images = {"before": {**ROW, "n": None}} if op == "d" else {"after": ROW}
    bare, described = (
        only_event(line(envelope(op, **images), key)) for key in (KEY, {"schema": block, "payload": KEY})
    )
    assert bare == described


def test_a_marker_is_one_only_where_a_value_can_be_unavailable() -> None:
    """INSERT sends all values: a marker in it is a user's value, unless the key has changed."""
    headers = {"__debezium.context.taskId": "0"}
    literal = only_event(line(envelope("c", after=MARKED), KEY, headers=headers))
    assert not literal.unavailable_columns
    assert json.loads(literal.metadata or "{}")["literal_markers"] == ["big"]
    moved = only_event(line(envelope("c", after=MARKED), KEY, headers={"__debezium.oldkey": {"id": 9}}))
    expected = ("big",)
    assert expected == moved.unavailable_columns
    assert moved.previous_keys == '{"id":9}'
    assert moved.mod_type is ModType.INSERT


@pytest.mark.parametrize(("order", "is_literal"), [(1, True), (2, True), (4, False), (None, False)])
def test_without_headers_only_the_event_before_shows_that_a_row_is_new(
    order: int | None, *, is_literal: bool
) -> None:
    """The other half of a key change would be that event; while it is not known, a marker is not a value."""
    place = {"id": "7", "total_order": 1}
    first = line(envelope("c", after={**KEY, "n": 1}, transaction=place), KEY)
    place = {"id": "7", "total_order": order}
    lines = [first] if order != 1 else []
    marked = envelope("c", after=MARKED, transaction=place, source={"lsn": 600})
    *_, event = decode_all(*lines, line(marked, KEY))
    assert isinstance(event, SourceEvent)
    assert event.unavailable_columns == (() if is_literal else ("big",))
    assert (DEFAULT_PLACEHOLDER in (event.new_values or "")) is is_literal


def test_the_half_that_gives_its_key_up_says_where_it_went() -> None:
    """A DELETE that is half of a key change names the new key in its metadata."""
    gone = only_event(line(envelope("d", before=KEY), KEY, headers={"__debezium.newkey": {"id": 9}}))
    assert gone.mod_type is ModType.DELETE
    assert json.loads(gone.metadata or "{}")["new_keys"] == '{"id":9}'


@pytest.mark.parametrize(
    ("policies", "unavailable"),
    [
        ({"*": NullPolicy.NULL}, ()),
        ({"*": NullPolicy.NULL, "smallint[]": NullPolicy.UNAVAILABLE}, ("xs",)),
        ({"smallint[]": NullPolicy.UNAVAILABLE, f"{TABLE}.xs": NullPolicy.NULL}, ()),
        ({"int2[]": NullPolicy.UNAVAILABLE}, ("xs",)),
        ({"_int2": NullPolicy.UNAVAILABLE}, ("xs",)),
    ],
)
def test_null_is_what_the_nearest_policy_says(policies: Any, unavailable: tuple[str, ...]) -> None:
    """The policy of a column counts before that of its type, and that before all others."""
    event = only_event(update(after={**ROW, "xs": None}), null_policies=policies)
    assert unavailable == event.unavailable_columns
    assert json.loads(event.metadata or "{}")["lossy_nulls"] == ["xs"]


def test_null_without_a_policy_is_refused() -> None:
    """The default is not silent; under FULL and in an INSERT, null is NULL."""
    assert "null_policies" in only_fault(update(after={**ROW, "xs": None})).reason
    only_event(update(after={**ROW, "xs": None}, before=ROW))
    only_event(line(envelope("c", after={**ROW, "xs": None}), KEY))


def test_a_column_that_a_transform_adds_to_keys_is_in_those_of_headers() -> None:
    """`ByLogicalTableRouter` adds the name of its table to the key of an event, but not to its headers."""
    name, topic = "__dbz__physicalTableIdentifier", "cdc.public.orders"
    moved = line(envelope("c", after=MARKED), KEY | {name: topic}, headers={"__debezium.oldkey": {"id": 9}})
    event = only_event(moved, columns={TABLE: {**COLUMNS[TABLE], name: "text"}})
    assert {"id": 9, name: topic} == json.loads(event.previous_keys or "")


def test_under_full_a_marker_is_a_value() -> None:
    """The row before is known whole, so a value that equals it was sent."""
    event = only_event(update(after=MARKED, before=MARKED))
    assert not event.unavailable_columns
    assert json.loads(event.old_values or "{}")["big"] == DEFAULT_PLACEHOLDER


def test_a_default_may_have_been_null() -> None:
    """The converter puts the default in the place of NULL; such values are counted."""
    fields = [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "n", "type": "int32", "optional": True, "default": 7},
    ]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    for number, expected in ((7, ["n"]), (8, None)):
        value = {"schema": schema, "payload": envelope("c", after={"id": 1, "n": number})}
        event = only_event(line(value, KEY), columns={})
        assert expected == json.loads(event.metadata or "{}").get("null_or_default")


def test_order_after_snapshots() -> None:
    """Rows of a snapshot come before all that is written later, and after all that was committed before."""
    decoder = Decoder(settings_with())
    sources: list[tuple[str, dict[str, Any]]] = [
        ("u", {"sequence": '["700","790"]', "lsn": 790}),
        ("r", {"sequence": '[null,"800"]', "lsn": 800, "snapshot": "true"}),
        # begun before the snapshot and committed after it: its position is the smaller one
        ("u", {"sequence": '[null,"795"]', "lsn": 795}),
        ("u", {"sequence": '["810","780"]', "lsn": 780}),
        # an incremental snapshot knows the commit before it, and nothing later
        ("r", {"sequence": '["820","820"]', "lsn": None, "txId": None, "snapshot": "incremental"}),
        ("u", {"sequence": '["820","815"]', "lsn": 815}),
        ("u", {"sequence": '["830","840"]', "lsn": 840, "commit_lsn": 850}),
    ]
    lines = [line(envelope(op, after=ROW, source=source), KEY) for op, source in sources]
    events = [
        event
        for text in lines
        for event in decode_all(text, decoder=decoder)
        if isinstance(event, SourceEvent)
    ]
    assert len(lines) == len(events)
    assert [order(event) for event in events] == sorted(order(event) for event in events)
    assert len(lines) == len({event.event_id for event in events})


def test_state_continues_in_the_next_decoder() -> None:
    """A decoder's state passes to the next one as text."""
    first = Decoder(settings_with())
    decode_all(
        line(envelope("r", after=ROW, source={"sequence": None, "lsn": 800, "snapshot": "last"}), KEY),
        decoder=first,
    )
    decode_all(line(envelope("d", before=KEY, source={"lsn": 810}), KEY), decoder=first)
    second = Decoder(settings_with(), DecoderState.from_json(first.state.to_json()))
    (event,) = decode_all(
        line(envelope("c", after=MARKED | {"id": 2}, source={"lsn": 810}), {"id": 2}), decoder=second
    )
    assert isinstance(event, SourceEvent)
    assert event.previous_keys == '{"id":1}'
    assert second.state.floors["s"] == 800


def test_other_topics_never_become_tables() -> None:
    """Heartbeats, boundaries, logical messages and signals are distinguished by their content."""
    message = envelope(
        "m", source={"table": "", "schema": "", "txId": None}, message={"prefix": "p", "content": "YQ=="}
    )
    decoded = decode_all(
        line({"ts_ms": 5}, {"serverName": "s"}),
        line({"status": "BEGIN", "id": "7:500", "event_count": None, "ts_ms": 5}, {"id": "7:500"}),
        line({"status": "END", "id": "7:900", "event_count": 2, "ts_ms": 5, "data_collections": None}),
        line(message, {"prefix": "p"}),
        line({"type": "execute-snapshot", "data": {}}, "s"),
        line(
            envelope("c", after={"id": "x", "type": "log", "data": ""}, source={"table": "signals"}),
            {"id": "x"},
        ),
        signal_table="public.signals",
    )
    kinds = [Heartbeat, TransactionBegin, TransactionEnd, SourceMessage, Signal, Signal]
    assert kinds == [type(event) for event in decoded]
    begin, end, marked = decoded[1], decoded[2], decoded[3]
    assert isinstance(begin, TransactionBegin)
    assert isinstance(end, TransactionEnd)
    assert begin.transaction_id == end.transaction_id == "7"
    assert isinstance(marked, SourceMessage)
    expected = ("p", "a", "")
    assert expected == (marked.prefix, marked.content, marked.transaction_id)


def test_a_full_table_with_a_key_of_zero_is_named() -> None:
    """A row whose key is 0 looks like a made-up key, unless FULL was seen or is declared."""
    row = {"id": 0, "n": 1, "big": "x", "xs": None}
    gone = line(envelope("d", before=row), {"id": 0})
    assert "full_identity" in only_fault(gone).reason
    only_event(gone, full_identity=(TABLE,))
    seen = line(envelope("u", before=ROW, after=ROW), KEY)
    assert all(isinstance(event, SourceEvent) for event in decode_all(seen, gone))


def test_rows_without_a_key_need_the_row_before() -> None:
    """An update without a key is the loss of one row and the gain of another; a TRUNCATE is neither."""
    lost, gained = decode_all(line(envelope("u", before=ROW, after={**ROW, "n": 3})))
    assert isinstance(lost, SourceEvent)
    assert isinstance(gained, SourceEvent)
    expected = (ModType.DELETE, ModType.INSERT)
    assert expected == (lost.mod_type, gained.mod_type)
    assert lost.ordering_key < gained.ordering_key
    assert lost.event_id != gained.event_id
    assert "REPLICA IDENTITY FULL" in only_fault(line(envelope("d"))).reason
    assert only_event(line(envelope("t"))).mod_type is ModType.TRUNCATE


def test_a_marker_in_a_row_without_a_key_is_the_value_before() -> None:
    """Connectors before 2.5 send the marker of an array under FULL, too; a marker in both rows is a value."""
    row: dict[str, Any] = {"n": 1, "tags": ["a", "b"], "notes": [DEFAULT_PLACEHOLDER]}
    after = {"n": 2, "tags": [DEFAULT_PLACEHOLDER], "notes": [DEFAULT_PLACEHOLDER]}
    columns = {TABLE: {"n": "integer", "tags": "text[]", "notes": "text[]"}}
    _, gained = decode_all(line(envelope("u", before=row, after=after)), columns=columns)
    assert isinstance(gained, SourceEvent)
    expected = {**row, "n": 2}
    assert expected == json.loads(gained.new_values or "")
    partial = line(envelope("u", before={"n": 1}, after=after))
    assert "`tags`" in only_fault(partial, columns=columns).reason


FAULTS: Final[list[tuple[Any, Any, str]]] = [
    # value, key, what the reason says
    (envelope("x", after=ROW), KEY, "operation"),
    (envelope("u"), KEY, "`after`"),
    (envelope("u", after=ROW, source={"sequence": "[1]"}), KEY, "sequence"),
    (envelope("u", after=ROW, source={"sequence": None, "lsn": None}), KEY, "position"),
    (envelope("u", after={**ROW, "n": "two"}), KEY, "`n`"),
    (envelope("u", after={**ROW, "extra": 1}), KEY, "columns"),
    (envelope("u", after=ROW), "Struct{id=1}", "JSON converter"),
    (envelope("u", after={**ROW, "extra": True}), KEY, "columns"),
    (envelope("u", after={**ROW, "extra": None}), KEY, "columns"),
    (envelope("c", after=ROW), {"id": None}, "key"),
    (envelope("c", after=ROW, source={"connector": "mysql"}), KEY, "'mysql'"),
    (
        envelope("c", after=ROW, source={"connector": "sqlserver", "commit_lsn": "25:d98:a8"}),
        KEY,
        "'sqlserver'",
    ),
    ({"op": "c", "after": "{}", "source": {"connector": "mongodb"}}, KEY, "'mongodb'"),
    ("text", KEY, "JSON"),
    ({"id": 1}, KEY, "add.fields"),
    (
        {"schema": {"fields": [{"field": "after", "fields": [{}]}]}, "payload": envelope("c", after=ROW)},
        KEY,
        "Debezium",
    ),
    ({"id": 1, "__op": "u"}, KEY, "position"),
    ({"id": 1, "__source_lsn": 5}, KEY, "may leave deletes out"),
    ({"id": 1, "__source_lsn": 5, "__op": "u"}, KEY, "may leave deletes out"),
    ({"id": 1, "__source_lsn": 5, "__deleted": "false"}, KEY, "inserted or updated"),
]


@pytest.mark.parametrize(("value", "key", "message"), FAULTS)
def test_what_cannot_be_used_goes_to_quarantine(value: Any, key: Any, message: str) -> None:
    """The fault says why, and has the whole line, so that it can be replayed."""
    fault = only_fault(line(value, key))
    assert message in fault.reason
    assert fault.text == line(value, key)


def test_a_mask_that_is_not_known_is_refused_at_once() -> None:
    """A mistake in the settings is not a fault of the events."""
    with pytest.raises(SettingError):
        Decoder(settings_with(column_placeholders={TABLE: {"big": "hash:NONE:s"}}))


def test_tables_are_named_by_a_template() -> None:
    """Two databases in one stream stay apart."""
    name = "d.public.orders"
    event = only_event(update(), columns={name: COLUMNS[TABLE]}, table_name="{database}.{schema}.{table}")
    assert name == event.table


def test_a_column_of_the_key_cannot_be_ignored() -> None:
    """Without it two rows would have one key; a transform may have added it to the key alone."""
    added = "__dbz__physicalTableIdentifier"
    for name in ("n", added):
        changed = line(envelope("u", after=ROW), {"id": 1, name: 2})
        reason = only_fault(changed, ignored_columns={TABLE: (name,)}).reason
        assert f"The column `{name}` of `{TABLE}` is part of its key" in reason
        assert "`ignored_columns`" in reason


def test_ignored_columns_stay_out() -> None:
    """A generated column is in snapshots only, so the table does not have it."""
    event = only_event(update(after={**ROW, "total": 5}), ignored_columns={TABLE: ("total",)})
    assert "total" not in event.column_types
