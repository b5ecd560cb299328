"""The simulated history: repeatable, whole, and true to its tables."""

import json
import re
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.errors import SettingError
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.simulator.history.history import History
from cdc_platform.simulator.history.history_file import transaction_line
from cdc_platform.simulator.history.hours import BLOCK_MICROS, LEASE_BLOCKS, OpeningHours
from cdc_platform.simulator.history.partitions import place
from cdc_platform.simulator.history.transactions import Mod
from cdc_platform.simulator.stream.records import watched_changes
from cdc_platform.simulator.wire.simulator_settings import (
    Dialect,
    RecordSequences,
    RootParents,
    SimulatorSettings,
)
from cdc_platform.simulator.wire.values import spanner_type, type_fields
from cdc_platform.sources.spanner.spanner_settings import Dialect as SourceDialect
from cdc_platform_tests.simulator.histories import (
    ORIGIN,
    SECOND,
    Simulated,
    announced,
    data_of,
    follow,
    simulated,
)
from cdc_platform_tests.type_cases import type_cases

SETTINGS = st.builds(
    SimulatorSettings,
    seed=st.integers(0, 2**32),
    rate=st.sampled_from([0.5, 30.0, 120.0]),
    partitions=st.sampled_from([1, 3, 40]),
    partition_life_s=st.sampled_from([0.05, 0.7, 3.0]),
    accounts=st.sampled_from([20, 60]),
    banks=st.sampled_from([1, 2]),
    keep_transfers=st.sampled_from([10, 1000]),
    all_types=st.booleans(),
    schema_change_every_s=st.sampled_from([None, 0.4]),
    value_capture_type=st.sampled_from([item for item in ValueCaptureType if item != "UNKNOWN"]),
)


@given(SETTINGS)
@settings(max_examples=15)
def test_readers_get_every_transaction_once_and_whole(chosen: SimulatorSettings) -> None:
    """Anyone who follows all partitions gets the records of every transaction, as many as each announces."""
    database = Simulated(chosen, ORIGIN + 4 * SECOND)
    partitions = follow(database)
    records_by_transaction = defaultdict(list)
    for token, records in partitions.items():
        for record in records:
            if record.server_transaction_id is not None:
                records_by_transaction[record.server_transaction_id].append((token, record))

    committed = [
        transaction
        for transaction in database.history.serial()
        if transaction.commit_micros <= database.now_micros
        and any(watched_changes(transaction, database.history.schemas.at(transaction.commit_micros)))
    ]
    assert {transaction.id: transaction.commit_micros for transaction in committed} == {
        identifier: sent_records[0][1].record_timestamp
        for identifier, sent_records in records_by_transaction.items()
    }
    for sent_records in records_by_transaction.values():
        assert {len(sent_records)} == {record.number_of_records_in_transaction for _, record in sent_records}
        tokens = Counter(token for token, _ in sent_records)
        assert {len(tokens)} == {record.number_of_partitions_in_transaction for _, record in sent_records}
        assert len(sent_records) == len({record.record_order for _, record in sent_records})


@given(SETTINGS)
@settings(max_examples=15)
def test_tables_are_the_changes_of_the_history(chosen: SimulatorSettings) -> None:
    """The rows at any moment are what the transactions up to it leave."""
    database = Simulated(chosen, ORIGIN + 4 * SECOND)
    history = database.history
    for at_micros in (ORIGIN + SECOND // 2, ORIGIN + 2 * SECOND + 7, database.now_micros):
        tables: dict[int, dict[Any, Any]] = defaultdict(dict)
        for transaction in history.serial():
            for change in transaction.changes if transaction.commit_micros <= at_micros else ():
                rows = tables[change.table]
                assert change.old == rows.get(change.key) or repr(change.old) == repr(rows.get(change.key))
                if change.mod == Mod.DELETE:
                    del rows[change.key]
                else:
                    rows[change.key] = change.new
        for number, rows in tables.items():
            assert repr(sorted(rows.items())) == repr(sorted(history.rows_at(number, at_micros).items()))


@given(SETTINGS)
@settings(max_examples=8)
def test_same_seed_same_history(chosen: SimulatorSettings) -> None:
    """Equal settings and origin give equal histories, for any order of requests."""
    simulated, other = Simulated(chosen, ORIGIN + 3 * SECOND), Simulated(chosen, ORIGIN)
    for second in range(1, 4):
        other.now_micros = ORIGIN + second * SECOND
        other.database.now_micros()

    assert repr(list(simulated.history.serial())) == repr(list(other.history.serial()))
    assert repr(follow(simulated)) == repr(follow(other))


def test_another_seed_is_another_history() -> None:
    """The seed decides."""
    history, other = (simulated(seed=seed).history for seed in (1, 2))

    assert list(history.serial())[5] != list(other.serial())[5]


def test_sum_of_balances_never_changes() -> None:
    """At every commit the balances of all banks add up to what they were opened with."""
    history = simulated(rate=300, accounts=30, banks=2).history
    balances: dict[Any, int] = {}
    schema = history.schemas.at(ORIGIN)
    for transaction in history.serial():
        for change in transaction.changes:
            if schema.by_number[change.table].name.startswith("accounts"):
                if change.new is None:
                    del balances[change.table, change.key]
                else:
                    balances[change.table, change.key] = change.new[2]
        assert sum(balances.values()) == 2 * 30 * 1000


def test_the_history_has_what_readers_stumble_over() -> None:
    """There are shared timestamps, wide transactions, both sequence forms, replacements and expired rows."""
    mixed = {"record_sequences": RecordSequences.MIXED, "partitions": 200, "keep_transfers": 500}
    history = simulated(20, rate=200, **mixed).history
    transactions = list(history.serial())[1:]
    widths = Counter(
        len({change.partition for change in transaction.changes}) for transaction in transactions
    )

    assert {1, 2, 3, 4, 5} == set(widths)
    assert len(transactions) > len({transaction.commit_micros for transaction in transactions})
    assert {True, False} == {transaction.is_high_low for transaction in transactions}
    assert {True, False} == {transaction.is_system for transaction in transactions}
    replacements = [transaction.changes for transaction in transactions if transaction.tag == "replacement"]
    assert {(Mod.DELETE, Mod.INSERT)} == {tuple(change.mod for change in changes) for changes in replacements}
    assert all(changes[0].key == changes[1].key for changes in replacements)


def test_partitions_divide_the_space_and_churn() -> None:
    """At any moment about as many partitions live as wanted, and they split, merge and move."""
    history = simulated(30, rate=1, partitions=50, partition_life_s=2).history
    partitions = [history.tree.serial(serial) for serial in range(50)]
    for at_micros in range(ORIGIN, ORIGIN + 29 * SECOND, 3 * SECOND):
        live = history.tree.live_at(at_micros)
        assert 45 <= len(live) <= 55
        assert all(item.high == other.low for item, other in pairwise(live))
    shapes = {len(partition.children) for partition in partitions}
    merged = {len(child.parents) for partition in partitions for child in partition.children}
    assert ({1, 2}, {1, 2}) == (shapes, merged)


@given(st.integers(0, 39), st.integers(0, 39))
def test_greater_keys_have_greater_places(item: int, other: int) -> None:
    """Partitions are ranges of keys: places are in the order of the keys."""
    assert (item <= other) == (place("accounts", (item,), 40) <= place("accounts", (other,), 40))


def test_preloaded_rows_have_no_records() -> None:
    """Tables that hold data when the stream begins need a copy: no record inserts these rows."""
    database = simulated(3, preloaded_transfers=100, rate=10)
    inserts = [record for record in data_of(follow(database)) if record.mod_type == "INSERT"]
    keys_sent = {keys for record in inserts for keys in (record.mods or ())[::3]}
    first = database.history.rows_at(1, ORIGIN)

    assert len(first) == 100
    assert not keys_sent & {json.dumps({"transfer_id": key}, separators=(",", ":")) for (key,) in first}


def open_at(path: Path, now_micros: int, **changed: Any) -> History:
    """Return the history of a state file, opened at a moment."""
    chosen = SimulatorSettings(seed=4, **{"rate": 50, **changed})
    return History(chosen, OpeningHours.kept_in(path, chosen, now_micros))


def lines(history: History, until_micros: int) -> list[str]:
    """Return the transactions that a history file would have."""
    return [
        transaction_line(transaction, history)
        for transaction in history.serial()
        if transaction.commit_micros <= until_micros
    ]


def test_history_continues_after_a_restart(tmp_path: Path) -> None:
    """A killed simulator's history comes back as it was, and nothing happens while none runs."""
    path = tmp_path / "state.json"
    first = open_at(path, ORIGIN)
    first.advance(ORIGIN + 7 * SECOND)
    killed_micros, later_micros = ORIGIN + 7 * SECOND, ORIGIN + 3600 * SECOND
    second = open_at(path, later_micros, rate=80)
    second.advance(later_micros + 2 * SECOND)

    assert lines(first, killed_micros) == lines(second, killed_micros)
    commits = [transaction.commit_micros for transaction in second.serial()]
    assert not [
        transaction
        for transaction in commits
        if killed_micros + (LEASE_BLOCKS + 1) * BLOCK_MICROS < transaction < later_micros
    ]
    assert [transaction for transaction in commits if transaction > later_micros]
    third = open_at(path, later_micros + 60 * SECOND)
    third.advance(later_micros + 60 * SECOND)
    assert lines(second, later_micros + 2 * SECOND) == lines(third, later_micros + 2 * SECOND)


def test_begin_of_a_state_is_given_once(tmp_path: Path) -> None:
    """A new file's history has the age that is asked for; one that is there keeps its begin, or says so."""
    path, begin = tmp_path / "state.json", ORIGIN - 3 * SECOND
    first = open_at(path, ORIGIN, history_s=3.0)
    first.advance(ORIGIN)

    assert begin == first.origin_micros
    assert lines(first, ORIGIN - SECOND)
    for changed in ({"history_s": 3.0}, {"origin_micros": begin + 1}):
        with pytest.raises(SettingError, match=f"`{next(iter(changed))}`.*began at {to_rfc3339(begin)}"):
            open_at(path, ORIGIN, **changed)
    again = open_at(path, ORIGIN, origin_micros=begin)
    again.advance(ORIGIN)
    assert lines(first, ORIGIN) == lines(again, ORIGIN)


def test_state_of_other_settings_is_refused(tmp_path: Path) -> None:
    """A history cannot continue with other settings, and a file that is none is said to be none."""
    path = tmp_path / "state.json"
    open_at(path, ORIGIN)

    with pytest.raises(SettingError, match="`accounts` is 30, but the history in"):
        open_at(path, ORIGIN, accounts=30)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(SettingError, match="is not a state file"):
        open_at(path, ORIGIN)


def test_transactions_to_come_are_not_counted() -> None:
    """History is made to the end of a second; what is committed later in it has not happened yet."""
    database = simulated(3.4, rate=100)
    history, now = database.history, database.now_micros
    happened = [transaction for transaction in history.serial() if transaction.commit_micros <= now]

    assert len(happened) == history.transactions_until(now) < history.transactions


@pytest.mark.parametrize(
    "name", ["rate", "partition_life_s", "history_s", "schema_change_every_s", "stall_s"]
)
def test_numbers_are_finite(name: str) -> None:
    """A setting that is not a number is refused by its name."""
    changed: dict[str, Any] = {name: float("nan")}
    with pytest.raises(SettingError, match=rf"`{name}` must be a finite number, but is: nan"):
        SimulatorSettings(**changed)


@pytest.mark.parametrize("dialect", list(Dialect))
def test_the_table_of_all_types_has_them(dialect: Dialect) -> None:
    """It has every type of its dialect and arrays of each, and an unknown type."""
    database = simulated(20, rate=30, accounts=20, all_types=True, dialect=dialect)
    table = database.history.schemas.at(ORIGIN).tables["all_types"]
    parse = ColumnType.from_spanner_type
    if dialect is Dialect.POSTGRESQL:
        parse = ColumnType.from_postgresql_type
    types = {column.name: type_fields(column.type) for column in table.columns}
    rows = database.history.rows_at(table.number, database.now_micros).values()

    own = {"PROTO", "ENUM"} if dialect is Dialect.GOOGLESQL else set()
    codes = {column.type.code.upper() for column in table.value_columns}
    assert codes == {case.type.code.upper() for case in type_cases(SourceDialect(dialect.value))} | own
    assert [
        column.name for column in table.columns if not parse(spanner_type(column.type, dialect)).is_known
    ] == [
        "c_hologram",
        "a_hologram",
    ]
    assert all(any(row[column.slot] is not None for row in rows) for column in table.columns)
    if dialect is Dialect.GOOGLESQL:
        assert types["c_proto"] == {"code": "PROTO", "proto_type_fqn": "bank.Card"}
        assert types["a_enum"] == {
            "code": "ARRAY",
            "array_element_type": {"code": "ENUM", "proto_type_fqn": "bank.Tier"},
        }


@pytest.mark.parametrize(
    ("chosen", "parents", "forms"),
    [
        ({}, [], {False}),
        ({"root_parents": RootParents.NULL, "record_sequences": RecordSequences.MIXED}, [""], {False, True}),
    ],
)
def test_forms_of_records_are_those_that_all_readers_know_unless_chosen(
    chosen: dict[str, Any], parents: list[str], forms: set[bool]
) -> None:
    """Roots have no parents, and sequences are eight decimal digits, unless a setting says otherwise."""
    database = simulated(5, rate=100, seed=7, **chosen)
    partitions = follow(database)
    sequences = {record.record_sequence or "" for record in data_of(partitions)}

    assert all(parents == names for _, names in announced(partitions[""]).values())
    assert forms == {"-" in sequence for sequence in sequences}
    assert all(re.fullmatch(r"\d{8}", sequence) for sequence in sequences if "-" not in sequence)
    plain = simulated(5, rate=100, seed=7).history.serial()
    assert [transaction.changes for transaction in plain] == [
        transaction.changes for transaction in database.history.serial()
    ]
