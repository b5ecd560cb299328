"""Keys that change: both halves in any order, and statements that move many keys at once."""

import json
from dataclasses import replace
from itertools import permutations
from typing import Any, Final, NamedTuple

import pytest

from cdc_platform.model.rows.key_shifts import KeyEvent, shifted_orders
from cdc_platform.model.stream.events import ADDRESS, FaultyEvent, SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.datastream.events.interpreter import Interpreter
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform_tests.sources.datastream.generated_events import Event, to_run
from cdc_platform_tests.sources.datastream.reference_sink import ReferenceSink


class Half(NamedTuple):
    """One event of a scenario: what it does to which key, the row's address, its transaction, its place."""

    change: str
    key: int
    row: str
    transaction: str
    place: int


INSERTED: Final = (Half("INSERT", 1, "A", "t1", 1), Half("INSERT", 2, "B", "t1", 2))


def oracle(half: Half) -> Event:
    """Return the event of Oracle."""
    metadata = {
        "schema": "S",
        "table": "T",
        "primary_keys": ["id"],
        "scn": 10,
        "rs_id": f" 0x000001.00000001.{half.place:04x} ",
        "ssn": 0,
        "row_id": half.row,
        "tx_id": half.transaction,
        "change_type": half.change,
    }
    return _event(half, metadata, "oracle-cdc-logminer", 0)


def mysql(half: Half) -> Event:
    """Return the event of MySQL, where all halves of a statement share a place."""
    metadata = {
        "database": "S",
        "table": "T",
        "primary_keys": ["id"],
        "log_file": "mysql-bin.000001",
        "log_position": 100 + (half.transaction != "t1"),
        "change_type": half.change,
    }
    return _event(half, metadata, "mysql-cdc-binlog", 1000 * (half.change == "UPDATE-INSERT"))


def sqlserver(half: Half) -> Event:
    """Return the event of SQL Server, where all rows of a transaction share a position without an order."""
    metadata = {
        "schema": "S",
        "table": "T",
        "primary_keys": ["id"],
        "lsn": f"00000025:{half.transaction[1:]:0>8}:0003",
        "tx_id": half.transaction,
        "physical_location": [1, half.place, 1],
        "change_type": half.change,
    }
    return _event(half, metadata, "sqlserver-cdc", 0)


def _event(half: Half, metadata: dict[str, Any], read_method: str, shift_ms: int) -> Event:
    return {
        "uuid": f"{half.transaction}-{half.place:08b}",
        "source_timestamp": 5_000 + shift_ms,
        "read_method": read_method,
        "source_metadata": metadata,
        "payload": {"id": half.key, "row": half.row},
    }


def outcomes(events: list[Event]) -> set[tuple[tuple[str, str], ...]]:
    """Return the rows that each order of arrival ends with; one, if the order does not matter."""
    interpreter = Interpreter(DatastreamSettings("stream"))
    changes = [interpreter.interpret(to_run(event)) for event in events]
    return {_outcome(order) for order in permutations(changes)}


def _outcome(order: tuple[SourceEvent | FaultyEvent, ...]) -> tuple[tuple[str, str], ...]:
    sink = ReferenceSink()
    sink.take(order)
    assert not sink.faults
    return tuple((keys, row["row"]) for keys, row in sink.rows("S.T").items())


def moves(*halves: tuple[str, int, str], transaction: str = "t2") -> tuple[Half, ...]:
    """Return the halves of a transaction, in the order of its log: D removes, I writes."""
    names = {"D": "UPDATE-DELETE", "I": "UPDATE-INSERT"}
    return tuple(
        Half(names[change], key, row, transaction, 10 + place)
        for place, (change, key, row) in enumerate(halves)
    )


@pytest.mark.parametrize(
    ("halves", "expected"),
    [
        # UPDATE t SET id = id + 1: Oracle checks at the statement's end, so 2 is written before it is freed.
        (moves(("D", 1, "A"), ("I", 2, "A"), ("D", 2, "B"), ("I", 3, "B")), {2: "A", 3: "B"}),
        (moves(("D", 2, "B"), ("I", 3, "B"), ("D", 1, "A"), ("I", 2, "A")), {2: "A", 3: "B"}),
        # UPDATE t SET id = id - 1
        (moves(("D", 1, "A"), ("I", 0, "A"), ("D", 2, "B"), ("I", 1, "B")), {0: "A", 1: "B"}),
        (moves(("D", 2, "B"), ("I", 1, "B"), ("D", 1, "A"), ("I", 0, "A")), {0: "A", 1: "B"}),
        # UPDATE t SET id = 3 - id
        (moves(("D", 1, "A"), ("I", 2, "A"), ("D", 2, "B"), ("I", 1, "B")), {1: "B", 2: "A"}),
        # There and back in one transaction: all deletes before all inserts would leave a ghost under 3.
        (moves(("D", 1, "A"), ("I", 3, "A"), ("D", 3, "A"), ("I", 1, "A")), {1: "A", 2: "B"}),
    ],
)
def test_oracle_moves_many_keys_in_one_transaction(
    halves: tuple[Half, ...], expected: dict[int, str]
) -> None:
    """A delete counts for the row whose address it has, so keys may shift, swap, and go there and back."""
    rows = tuple((f'{{"id":{key}}}', row) for key, row in expected.items())
    assert {rows} == outcomes([oracle(half) for half in (*INSERTED, *halves)])


def test_an_address_that_changed_does_not_save_a_deleted_row() -> None:
    """Moving a table changes its rows' addresses; a delete of another transaction counts nevertheless."""
    removal = Half("DELETE", 2, "elsewhere", "t9", 20)
    assert {(('{"id":1}', "A"),)} == outcomes([oracle(half) for half in (*INSERTED, removal)])


@pytest.mark.parametrize(
    ("halves", "expected"),
    [
        # UPDATE t SET id = id + 1 ORDER BY id DESC, and id - 1 ORDER BY id: MySQL checks row by row.
        (moves(("D", 2, "B"), ("I", 3, "B"), ("D", 1, "A"), ("I", 2, "A")), {2: "A", 3: "B"}),
        (moves(("D", 1, "A"), ("I", 0, "A"), ("D", 2, "B"), ("I", 1, "B")), {0: "A", 1: "B"}),
    ],
)
def test_mysql_moves_many_keys_at_one_place(halves: tuple[Half, ...], expected: dict[int, str]) -> None:
    """All halves of a statement may share a place; what is written is stamped a second later, and wins."""
    rows = tuple((f'{{"id":{key}}}', row) for key, row in expected.items())
    assert {rows} == outcomes([mysql(half) for half in (*INSERTED, *halves)])


@pytest.mark.parametrize(
    ("halves", "expected"),
    [
        # UPDATE t SET id = id + 1; the new row 2 lies on a page before that of the old one.
        (moves(("D", 1, "A"), ("I", 2, "A"), ("D", 2, "B"), ("I", 3, "B")), {2: "A", 3: "B"}),
        (moves(("D", 2, "B"), ("I", 3, "B"), ("D", 1, "A"), ("I", 2, "A")), {2: "A", 3: "B"}),
        # UPDATE t SET id = 3 - id, all new rows before all old ones, and the other way round.
        (moves(("I", 1, "B"), ("I", 2, "A"), ("D", 1, "A"), ("D", 2, "B")), {1: "B", 2: "A"}),
        (moves(("D", 1, "A"), ("D", 2, "B"), ("I", 1, "B"), ("I", 2, "A")), {1: "B", 2: "A"}),
        # A row that is rewritten, and lies elsewhere.
        (moves(("I", 1, "C"), ("D", 1, "A")), {1: "C", 2: "B"}),
    ],
)
def test_sqlserver_moves_many_keys_at_one_place(halves: tuple[Half, ...], expected: dict[int, str]) -> None:
    """An insert wins over a delete of the same log sequence number, wherever the rows lie."""
    rows = tuple((f'{{"id":{key}}}', row) for key, row in expected.items())
    assert {rows} == outcomes([sqlserver(half) for half in (*INSERTED, *halves)])


def test_rows_of_one_place_are_all_kept() -> None:
    """Three rows of one INSERT share their place: they are three rows, not one."""
    rows = [Half("INSERT", key, "A", "t1", key) for key in (1, 2, 3)]
    expected = tuple((f'{{"id":{key}}}', "A") for key in (1, 2, 3))
    assert {expected} == outcomes([mysql(half) for half in rows])


def test_deletes_of_one_redo_record_all_count() -> None:
    """Oracle's array delete has up to 255 rows under one record set and number."""
    removals = [Half("DELETE", half.key, half.row, "t2", 9) for half in INSERTED]
    events = [oracle(half) for half in (*INSERTED, *removals)]
    assert {()} == outcomes([{**event, "uuid": f"u{n}"} for n, event in enumerate(events)])


SHIFTS: Final = [
    moves(("D", 1, "A"), ("I", 2, "A"), ("D", 2, "B"), ("I", 3, "B")),
    moves(("D", 2, "B"), ("I", 3, "B"), ("D", 1, "A"), ("I", 2, "A")),
    moves(("D", 1, "A"), ("I", 2, "A"), ("D", 2, "B"), ("I", 1, "B")),
    moves(("D", 1, "A"), ("I", 3, "A"), ("D", 3, "A"), ("I", 1, "A")),
    # Up, and down again.
    moves(("D", 1, "A"), ("I", 2, "A"), ("D", 2, "A"), ("I", 1, "A")),
]


@pytest.mark.parametrize("halves", SHIFTS)
def test_orders_of_shifted_keys_say_the_same_in_any_order(halves: tuple[Half, ...]) -> None:
    """Where the newest ordering key of each key counts, each order of cycles ends as the addresses say."""
    interpreter = Interpreter(DatastreamSettings("stream"))
    events = [interpreter.interpret(to_run(oracle(half))) for half in (*INSERTED, *halves)]
    assert all(isinstance(event, SourceEvent) for event in events)
    changes = [event for event in events if isinstance(event, SourceEvent)]
    expected = dict(_outcome(tuple(changes)))
    for order in permutations(changes):
        assert expected == _newest([[change] for change in order])
    assert expected == _newest([changes]) == _newest([changes[:4], changes[4:], changes])


def _newest(cycles: list[list[SourceEvent]]) -> dict[str, str]:
    """Return the rows after cycles, each of which orders its halves among the earlier ones."""
    newest: dict[str, tuple[str, SourceEvent]] = {}
    logged: list[KeyEvent] = []
    for cycle in cycles:
        event_ids = {item.event_id for item in logged}
        ours = [change for change in cycle if change.event_id not in event_ids]
        moved = shifted_orders([*logged, *map(_key_event, ours)])
        for change in ours:
            ranked = (moved.get(change.event_id, change.ordering_key), change)
            logged.append(replace(_key_event(change), logged_order=ranked[0]))
            former = newest.setdefault(change.keys, ranked)
            newest[change.keys] = max(former, ranked, key=lambda item: item[0])
    living = {keys: item for keys, (_, item) in sorted(newest.items()) if item.mod_type is not ModType.DELETE}
    return {keys: json.loads(item.new_values or "{}")["row"] for keys, item in living.items()}


def _key_event(change: SourceEvent) -> KeyEvent:
    address = json.loads(change.metadata or "{}")[ADDRESS]
    is_removal = change.mod_type is ModType.DELETE
    place = (change.table, change.transaction_id, change.keys, address, change.ordering_key)
    return KeyEvent(change.event_id, *place, is_removal)
