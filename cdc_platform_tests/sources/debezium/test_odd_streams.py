"""Streams as people keep them: without keys or headers, cut off, named alike, older than their metadata."""

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER, ConnectorModes, DecimalMode
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform_tests.sources.debezium.applied_changes import apply_changes
from cdc_platform_tests.sources.debezium.cycles import Cycles, append
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
from cdc_platform_tests.strategies import spelled_decimals
from cdc_platform_tests.support.debezium.connector import Connector, cycles_over, faults_of, feed, keys_of

TEXTS: Final = ConnectorModes(decimals=DecimalMode.STRING)
KEYS = {TABLE: ("id",)}


def values_of(*lines: str) -> list[str]:
    """Return the values of lines, each alone."""
    return [json.dumps(json.loads(text)["value"]) for text in lines]


def test_a_key_change_of_values_alone_is_paired() -> None:
    """Without keys and headers, the columns that `keys` names identify the halves."""
    marked = {"id": 9, "n": 1, "big": DEFAULT_PLACEHOLDER}
    gone = line(envelope("d", before={"id": 1, "n": None, "big": None}))
    moved = line(envelope("c", after=marked))
    _, event = decode_all(*values_of(gone, moved), keys=KEYS)
    assert isinstance(event, SourceEvent)
    assert event.previous_keys == '{"id":1}'
    assert event.unavailable_columns == ("big",)


def test_an_update_of_a_chosen_key_is_a_key_change() -> None:
    """The columns that `keys` names are not the database's key, so their change comes as an update."""
    before = {"id": 1, "n": 1, "big": "text"}
    update = line(envelope("u", before=before, after={**before, "id": 2}))
    lost, gained = decode_all(update, keys=KEYS)
    assert isinstance(lost, SourceEvent)
    assert isinstance(gained, SourceEvent)
    assert (lost.mod_type, lost.keys) == (ModType.DELETE, '{"id":1}')
    assert (gained.mod_type, gained.keys, gained.previous_keys) == (ModType.INSERT, '{"id":2}', '{"id":1}')
    assert gained.new_values == '{"n":1,"big":"text"}'
    assert lost.ordering_key < gained.ordering_key
    same = line(envelope("u", before={"id": 0, "n": 1}, after={"id": 2, "n": 1}), {"id": 2})
    assert only_event(same).mod_type is ModType.UPDATE


def test_values_alone_differ_by_their_keys() -> None:
    """Rows of a COPY share their position; repeats are recognised at any place."""
    rows = [line(envelope("c", after={"id": key, "n": 1})) for key in (1, 2, 1)]
    events = decode_all(*values_of(*rows), keys=KEYS)
    first, second, again = (event for event in events if isinstance(event, SourceEvent))
    assert first.event_id != second.event_id
    assert first.event_id == again.event_id


def flattened(sequence: int, **row: Any) -> str:
    """Return an update that was flattened, with a sequence as the only position."""
    fields = {"__op": "u", "__source_schema": "public", "__source_table": "orders", "__source_txId": 7}
    fields["__deleted"] = "false"
    return line({**row, **fields, "__source_sequence": json.dumps(["400", str(sequence)])}, {"id": row["id"]})


def test_flattened_updates_without_an_lsn_are_distinguished() -> None:
    """Two updates of a row in one transaction are two, by what `source.sequence` says."""
    first, second = (only_event(flattened(place, id=1, n=place)) for place in (500, 510))
    assert first.event_id != second.event_id


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"status": "BEGIN"}, id="transaction"),
        pytest.param({"aggregate_type": "Order", "type": "OrderCreated"}, id="notification"),
    ],
)
def test_columns_may_be_called_as_fields_of_messages(columns: Mapping[str, Any]) -> None:
    """A flattened row is one row, for any column names of its table."""
    types = {"id": "bigint", **dict.fromkeys(columns, "text")}
    event = only_event(flattened(500, id=1, **columns), columns={TABLE: types})
    assert event.new_values is not None
    assert columns.keys() <= json.loads(event.new_values).keys()


def test_two_tables_of_one_name_are_not_mixed() -> None:
    """The second one goes to quarantine, in later cycles too, unless `partitions` says that both are one."""
    settings = settings_with(table_name="{table}", columns={"orders": COLUMNS[TABLE]})
    decoder = Decoder(settings)
    first = line(envelope("c", after={"id": 1}), {"id": 1})
    other = line(envelope("c", after={"id": 2}, source={"schema": "archive"}), {"id": 2})
    assert isinstance(decode_all(first, decoder=decoder)[0], SourceEvent)
    later = Decoder(settings, DecoderState.from_json(decoder.state.to_json()))
    (fault,) = decode_all(other, decoder=later)
    assert isinstance(fault, FaultyEvent)
    assert "`public.orders` and `archive.orders`" in fault.reason
    item = {"partitions": {"archive[.]orders": TABLE}, "columns": {"orders": COLUMNS[TABLE]}}
    assert only_event(other, table_name="{table}", **item).table == "orders"


def test_dots_of_names_do_not_make_two_tables_one() -> None:
    """The table `c` of a schema `a.b` is not the table `b.c` of a schema `a`."""
    columns = dict.fromkeys(("a.b.c", "a.b__c", "a__b.c"), COLUMNS[TABLE])
    lines = [
        line(envelope("c", after={"id": 1, "n": 1}, source={"schema": schema, "table": table}), {"id": 1})
        for schema, table in (("a.b", "c"), ("a", "b.c"))
    ]
    first, second = decode_all(*lines, columns=columns)
    assert isinstance(first, SourceEvent)
    assert isinstance(second, FaultyEvent)
    assert '`"a.b".c` and `a.b.c` would both be `a.b.c`' in second.reason
    separate = decode_all(*lines, columns=columns, table_name="{schema}__{table}")
    assert {"a.b__c", "a__b.c"} == {event.table for event in separate if isinstance(event, SourceEvent)}


def test_tables_of_two_databases_are_not_one() -> None:
    """A pattern of topics may match those of another connector, whose rows have the same keys."""
    lines = [
        line(envelope("c", after={"id": 1, "n": n}, source={"db": database}), {"id": 1})
        for n, database in enumerate(("shop", "billing"))
    ]
    first, second = decode_all(*lines)
    assert isinstance(first, SourceEvent)
    assert isinstance(second, FaultyEvent)
    assert "`shop`, and this one from `billing`" in second.reason
    columns = {f"{database}.orders": COLUMNS[TABLE] for database in ("shop", "billing")}
    separate = decode_all(*lines, columns=columns, table_name="{database}.{table}")
    assert [*columns] == [event.table for event in separate if isinstance(event, SourceEvent)]


@pytest.mark.parametrize("databases", [("", "shop", "shop"), ("shop", "", "shop"), ("", "", "shop")])
def test_events_that_do_not_state_their_database_are_of_any(databases: tuple[str, ...]) -> None:
    """A flattened event has it in `__db` only on request, and the request may come later."""
    texts = (
        line(envelope("c", after={"id": n, "n": n}, source={"db": database}), {"id": n})
        for n, database in enumerate((*databases, "billing"))
    )
    *events, other = decode_all(*texts)
    assert [SourceEvent] * len(databases) == [type(event) for event in events]
    assert isinstance(other, FaultyEvent)


@pytest.mark.parametrize("name", ["", "N", "_pos", "b\u0131g", "x\u017f"])
def test_a_column_that_the_lake_cannot_have_is_refused(name: str) -> None:
    """An event with an empty or reserved name, or with two that are one to Spark, never enters the log."""
    columns = {TABLE: {**COLUMNS[TABLE], name: "text"}}
    fault = only_fault(
        line(envelope("c", after={"id": 1, "n": 1, "xs": [], "big": "", name: "a"}), {"id": 1}),
        columns=columns,
    )
    assert f"`{name}`" in fault.reason
    assert "`ignored_columns`" in fault.reason
    good = line(envelope("c", after={"id": 1, "n": 1, name: "a"}), {"id": 1})
    assert only_event(good, columns=columns, ignored_columns={TABLE: (name,)}).new_values == '{"n":1}'


def test_what_was_sent_before_the_metadata_holds_nothing_back(tmp_path: Path) -> None:
    """Its transactions have no boundaries, so each of its events counts alone, even a bad one."""
    connector = Connector(commit=900, lsn=900, transaction=800)
    connector.whole(3)
    old = [line(envelope("c", after={"id": 1, "n": n}), {"id": 1}) for n in (1, "much")]
    cycles = feed(cycles_over(tmp_path), [*old, *connector.lines])
    assert cycles.waiting == []
    assert len(faults_of(cycles)) == 1
    cycles.log = [row for row in cycles.log if row["event"]["fault"] is None]
    assert keys_of(cycles) == [1, 3]


def test_a_file_that_was_cut_is_reported(tmp_path: Path) -> None:
    """A log file that was emptied to be rewritten would else lose as many lines as had been read."""
    connector = Connector()
    connector.whole(1)
    cycles = feed(cycles_over(tmp_path), connector.lines, "1.jsonl")
    connector.whole(2)
    (tmp_path / "1.jsonl").write_text(f"{connector.lines[-1]}\n")
    (reported,) = (row for row in cycles.read() if (row["event"] or {}).get("origin", "").endswith("1.jsonl"))
    report = json.loads(reported["event"]["metadata"])
    assert not report["is_read"]
    assert "166 bytes instead of 750. It was cut, or rewritten" in report["error"]


def test_texts_may_have_separators_of_lines(tmp_path: Path) -> None:
    """JSON writes them as they are, and the last line of a file may have no end."""
    cycles = Cycles(settings_with(input=FilesInput(str(tmp_path))))
    text = "first\u2028second\u0085third"
    row = line(envelope("c", after={"id": 1, "big": text}), {"id": 1})
    append(tmp_path / "1.jsonl", [json.dumps(json.loads(row), ensure_ascii=False)])
    with (tmp_path / "1.jsonl").open("a") as file:
        file.write(line(envelope("c", after={"id": 2}), {"id": 2}))
    cycles.read()
    assert keys_of(cycles) == [1, 2]
    assert json.loads(cycles.log[0]["mods"][0]["new_values"])["big"] == text


@pytest.mark.parametrize("further", [{"leader_epoch": 4}, {"serverId": 1, "size": 20}])
def test_tools_may_write_further_members(further: dict[str, Any]) -> None:
    """Members other than topic, key and value are ignored."""
    event = only_event(line(envelope("c", after={"id": 1}), {"id": 1}, **further))
    assert event.keys == '{"id":1}'


def test_an_empty_text_is_no_value() -> None:
    """Tools that write texts write a tombstone so."""
    assert [type(decoded).__name__ for decoded in decode_all(line("", '{"id":1}'))] == ["Tombstone"]
    assert "`n`" in only_fault(line(envelope("c", after={"id": 1, "n": "x"}), {"id": 1})).reason


def test_a_key_that_has_become_another_is_refused() -> None:
    """Rows of a table whose key got a column, or that lost its key, are not mixed, in later cycles too."""
    decoder = Decoder(settings_with())
    first = line(envelope("c", after={"id": 1, "n": 1}), {"id": 1})
    (event,) = decode_all(first, decoder=decoder)
    assert isinstance(event, SourceEvent)
    for key in ({"id": 1, "n": 1}, None):
        later = Decoder(settings_with(), DecoderState.from_json(decoder.state.to_json()))
        (fault,) = decode_all(line(envelope("c", after={"id": 1, "n": 1}), key), decoder=later)
        assert isinstance(fault, FaultyEvent)
        assert "and was (id)" in fault.reason
    (again,) = decode_all(line(envelope("t"), None), decoder=decoder)
    assert isinstance(again, SourceEvent)
    bare = json.dumps(envelope("c", after={"id": 1, "n": 1}))
    unknown = Decoder(settings_with())
    assert isinstance(decode_all(bare, decoder=unknown)[0], FaultyEvent)
    named = Decoder(settings_with(keys=KEYS), DecoderState.from_json(unknown.state.to_json()))
    assert isinstance(decode_all(bare, decoder=named)[0], SourceEvent)


NUMBERED: Final = {TABLE: {"id": "numeric(36,3)", "n": "integer", "big": "text"}}


@given(spelled_decimals(), spelled_decimals())
def test_equal_keys_are_one_text(item: str, other: str) -> None:
    """Rows are identified by the texts of keys, so equal numbers have equal texts in every spelling."""
    events = (
        only_event(
            line(envelope("c", after={"id": text, "n": 1}), {"id": text}),
            columns=NUMBERED,
            connector=TEXTS,
        )
        for text in (item, other)
    )
    assert (Decimal(item) == Decimal(other)) == (len({event.keys for event in events}) == 1)


def test_the_columns_of_a_key_have_one_order() -> None:
    """This holds for any order of the connector, and both zeros of a float are one."""
    columns = {TABLE: {"id": "bigint", "part": "double precision"}}
    keys = ({"id": 1, "part": 0.0}, {"part": -0.0, "id": 1})
    events = [only_event(line(envelope("c", after=key), key), columns=columns) for key in keys]
    assert [event.keys for event in events] == ['{"id":1,"part":0.0}'] * 2


def test_a_row_is_followed_however_its_key_is_written() -> None:
    """A value that an update did not send is that of the update before it, under the key's other text."""
    sent = [
        line(envelope("c", after={"id": "1.00", "n": 1, "big": "old"}), {"id": "1.00"}),
        line(envelope("u", after={"id": "1.000", "n": 2, "big": "new"}), {"id": "1.000"}),
        line(envelope("u", after={"id": "1.00", "n": 3, "big": DEFAULT_PLACEHOLDER}), {"id": "1.00"}),
    ]
    decoded = decode_all(*sent, columns=NUMBERED, connector=TEXTS)
    changes = [event for event in decoded if isinstance(event, SourceEvent)]
    for batch in (1, 2, 3):
        tables, unresolved = apply_changes(changes, batch)
        assert list(tables.values()) == [{"n": 3, "big": "new"}]
        assert unresolved == []


def test_a_key_of_more_digits_than_its_type_is_refused() -> None:
    """Cut off, it would be another row's."""
    number = line(envelope("c", after={"id": "1.0005", "n": 1}), {"id": "1.0005"})
    fault = only_fault(number, columns=NUMBERED, connector=TEXTS)
    assert 'has more digits than decimal(36,3): "1.0005"' in fault.reason


@pytest.mark.parametrize("op", ["c", "u", "d"])
def test_a_marker_is_no_key(op: str) -> None:
    """A key that was not sent names no row, for any kind of event."""
    marked = {"id": DEFAULT_PLACEHOLDER, "n": 1}
    row = line(envelope(op, **{"before" if op == "d" else "after": marked}), {"id": DEFAULT_PLACEHOLDER})
    columns = {TABLE: {"id": "text", "n": "integer"}}
    assert "The key's column `id` was not sent" in only_fault(row, columns=columns).reason
    chosen = json.dumps(json.loads(row)["value"])
    assert "was not sent" in only_fault(chosen, columns=columns, keys=KEYS).reason


def test_a_key_that_has_got_another_type_is_refused() -> None:
    """The lake could not find the rows that it has, in later cycles too; a wider integer is the same type."""
    decoder = Decoder(settings_with(columns={TABLE: {"id": "integer", "n": "integer"}}))
    row = line(envelope("c", after={"id": 1, "n": 1}), {"id": 1})
    assert isinstance(decode_all(row, decoder=decoder)[0], SourceEvent)
    state = decoder.state.to_json()
    for kind, is_taken in (("bigint", True), ("numeric(10,0)", False), ("text", False)):
        settings = settings_with(columns={TABLE: {"id": kind, "n": "integer"}}, connector=TEXTS)
        later = Decoder(settings, DecoderState.from_json(state))
        key = 2 if kind == "bigint" else "2"
        (decoded,) = decode_all(line(envelope("c", after={"id": key, "n": 1}), {"id": key}), decoder=later)
        assert is_taken == isinstance(decoded, SourceEvent)
        assert is_taken or "`id` of `public.orders` is" in getattr(decoded, "reason", "")


def test_columns_that_differ_in_case_only_are_refused() -> None:
    """The lake would take both for one; one of them may be left out."""
    columns = {TABLE: {"id": "bigint", "N": "text", "n": "text"}}
    text = line(envelope("c", after={"id": 1, "N": "a", "n": "b"}), {"id": 1})
    assert "`N` and `n`" in only_fault(text, columns=columns).reason
    assert only_event(text, columns=columns, ignored_columns={TABLE: ("N",)}).new_values == '{"n":"b"}'


@pytest.mark.parametrize("name", ["_file", "__deleted", "__Deleted_At"])
def test_a_column_that_no_lake_can_have_is_refused(name: str) -> None:
    """It stops no cycle; its events continue once it is left out."""
    columns = {TABLE: {"id": "bigint", name: "text"}}
    text = line(envelope("c", after={"id": 1, name: "a"}), {"id": 1})
    assert f"`{name}` of `public.orders`" in only_fault(text, columns=columns).reason
    assert only_event(text, columns=columns, ignored_columns={TABLE: (name,)}).new_values == "{}"


def test_a_spool_has_files_that_are_no_events(tmp_path: Path) -> None:
    """The spool's own JSON files are not read as events."""
    place = EngineInput("host", "database", "user", str(tmp_path))
    cycles = Cycles(settings_with(input=place))
    (tmp_path / "spool.json").write_text('{"format_version": 1}')
    append(tmp_path / f"{0:020}.jsonl", [line(envelope("c", after={"id": 1}), {"id": 1})])
    cycles.read()
    assert keys_of(cycles) == [1]
    assert faults_of(cycles) == []


def with_schemas(text: str, key_type: str) -> str:
    """Return a message whose parts have schema blocks."""
    message = json.loads(text)
    row = {"type": "struct", "fields": [{"field": "id", "type": key_type}, {"field": "n", "type": "int32"}]}
    halves = [{**row, "field": half} for half in ("before", "after")]
    key = {"schema": {**row, "fields": row["fields"][:1]}, "payload": message["key"]}
    value = {"schema": {"type": "struct", "fields": halves}, "payload": message["value"]}
    return json.dumps({**message, "key": key, "value": value})


def test_a_fault_teaches_nothing_of_its_table() -> None:
    """The rows after an event that cannot be used are judged as if it had not come."""
    poison = with_schemas(line(envelope("c", after=None), {"id": "x"}), "string")
    good = with_schemas(line(envelope("c", after={"id": 1, "n": 1}), {"id": 1}), "int64")
    alone, decoder = Decoder(settings_with(columns={})), Decoder(settings_with(columns={}))
    (expected,) = alone.decode_lines([good], 1)
    fault, event = decoder.decode_lines([poison, good])
    assert isinstance(fault, FaultyEvent)
    assert expected == event
    assert alone.state.to_json() == decoder.state.to_json()


def test_an_array_of_too_many_dimensions_is_a_fault() -> None:
    """PostgreSQL has six; of hundreds, a table's schema could be written and not be read again."""
    kind: dict[str, Any] = {"type": "int32"}
    for _ in range(7):
        kind = {"type": "array", "items": kind}
    message = json.loads(with_schemas(line(envelope("c", after={"id": 1, "n": None}), {"id": 1}), "int64"))
    for half in message["value"]["schema"]["fields"]:
        half["fields"][1] = {"field": "n", **kind}
    (fault,) = Decoder(settings_with(columns={})).decode_lines([json.dumps(message)])
    assert isinstance(fault, FaultyEvent)
    assert "more than 6 dimensions" in fault.reason


def test_a_snapshot_row_that_is_a_fault_moves_no_position() -> None:
    """An impossible position does not make the changes after it look old."""
    source = {"lsn": 2**64 - 1, "snapshot": "true"}
    decoder = Decoder(settings_with())
    (fault,) = decoder.decode_lines([line(envelope("r", after=None, source=source), {"id": 1})])
    assert isinstance(fault, FaultyEvent)
    assert decoder.state.floors == {}


def test_an_inserted_row_outlives_a_deletion_that_is_a_fault(tmp_path: Path) -> None:
    """Half of a key change whose other half cannot be used is its own row, and the cycle continues."""
    inserted = line(envelope("c", after={"id": 2, "n": 1, "big": "text"}), {"id": 2})
    deleted = line(envelope("d", before=None), {"id": "x"})
    cycles = Cycles(settings_with(input=FilesInput(str(tmp_path))))
    feed(cycles, [inserted, deleted])
    assert [row["mods"][0]["keys"] for row in cycles.log] == [None, '{"id":2}']
    assert len(faults_of(cycles)) == 1
