"""Partitions between which keys move: the same transactions, each key in one partition at a time."""

from collections import defaultdict
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.model.stream.ordering_key import record_order
from cdc_platform.simulator.history.history import History
from cdc_platform.simulator.history.moving_keys import ChangeKind, MovingKeys, PartitionChange
from cdc_platform.simulator.history.transactions import Transaction
from cdc_platform.simulator.wire.simulator_settings import PartitionMode
from cdc_platform_tests.simulator.histories import ORIGIN, SECOND, Simulated, simulated

MUTABLE: Final = PartitionMode.MUTABLE_KEY_RANGE
AT_WORK: Final = {"rate": 200, "partitions": 5, "partition_life_s": 0.2, "accounts": 30}
KINDS: Final = {ChangeKind.MOVE_IN: "in", ChangeKind.MOVE_OUT: "out"}


def moving(seconds: float = 4.0, seed: int = 7) -> Simulated:
    """Return a database whose keys move many times a second."""
    return simulated(seconds, seed=seed, partition_mode=MUTABLE, **AT_WORK)


def changes_of(history: History) -> list[PartitionChange]:
    """Return what happened to the partitions."""
    assert isinstance(history.tree, MovingKeys)
    return history.tree.changes


def without_partitions(transactions: list[Transaction]) -> list[Transaction]:
    """Return transactions as they are, wherever their rows lie."""
    return [
        transaction._replace(changes=tuple(change._replace(partition=0) for change in transaction.changes))
        for transaction in transactions
    ]


def test_the_transactions_are_those_of_the_other_mode() -> None:
    """The mode divides the keys otherwise, and changes nothing else of the history."""
    immutable = list(simulated(4, seed=7, **AT_WORK).history.serial())
    assert without_partitions(immutable) == without_partitions(list(moving().history.serial()))


@given(st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_partitions_live_while_they_have_changes(seed: int) -> None:
    """A change lies in a partition that has started and has not ended, and about as many live as wanted."""
    history = moving(seed=seed).history
    for transaction in history.serial():
        for change in transaction.changes:
            partition = history.tree.serial(change.partition)
            assert partition.start_micros <= transaction.commit_micros
            assert transaction.commit_micros <= (partition.end_micros or transaction.commit_micros)
    assert 3 <= history.tree.live_count <= 7


@given(st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_a_key_changes_its_partition_by_a_move_only(seed: int) -> None:
    """Between two changes of a key in different partitions keys have moved out of the first one."""
    history, visits = moving(seed=seed).history, defaultdict(list)
    for transaction in history.serial():
        for change in transaction.changes:
            visits[change.table, change.key].append((transaction.commit_micros, change.partition))
    out = defaultdict(set)
    for event in changes_of(history):
        if event.kind is ChangeKind.MOVE_OUT:
            out[event.partition.serial].add(event.moment.micros)
    moved = 0
    for places in visits.values():
        for (before, serial), (after, other) in pairwise(places):
            if serial != other:
                moved += 1
                assert any(before <= micros <= after for micros in out[serial])
    assert moved > 10


def test_both_sides_report_a_move() -> None:
    """What moves out of a partition moves into another one at the same moment."""
    sides = defaultdict(set)
    for change in changes_of(moving().history):
        for other in change.other_tokens if change.kind in KINDS else ():
            pair = (change.partition.token, other)
            is_in = change.kind is ChangeKind.MOVE_IN
            sides[KINDS[change.kind]].add((change.moment, *(pair[::-1] if is_in else pair)))
    assert len(sides["in"]) > 20
    assert sides["in"] == sides["out"]


@pytest.mark.parametrize("kind", ["data_change", "partition_event"])
def test_a_partition_has_records_at_its_end(kind: str) -> None:
    """Other records may share the timestamp of a partition's end, which is the last of them."""
    database = moving(8.0)
    count = 0
    for change in changes_of(database.history):
        end = change.moment.micros
        if change.kind is ChangeKind.END and end < database.now_micros:
            records = database.records(change.partition.token, end, end)
            assert records[-1].kind == "partition_end"
            orders = [record_order(record.record_sequence or "") for record in records]
            assert orders == sorted(set(orders))
            count += any(record.kind == kind for record in records)
    assert count


def test_records_around_a_move_share_its_timestamp() -> None:
    """Transactions of a move's timestamp lie before it in the one partition, and after it in the other."""
    database, before, after = moving(8.0), 0, 0
    for change in changes_of(database.history):
        if change.kind in KINDS and change.moment.micros < database.now_micros:
            records = database.records(change.partition.token, *[change.moment.micros] * 2)
            kinds = [record.kind for record in records]
            before += "data_change" in kinds[: kinds.index("partition_event")]
            after += "data_change" in kinds[kinds.index("partition_event") :]
    assert before > 0
    assert after > 0


def test_a_query_returns_the_same_records_in_parts() -> None:
    """What queries of halves of a time return is what one query of all of it does."""
    database = moving()
    for partition in database.history.tree.live_at(ORIGIN + SECOND):
        start, end = partition.start_micros, partition.end_micros or database.now_micros
        middle = (start + end) // 2
        parts = database.records(partition.token, start, middle)
        parts += database.records(partition.token, middle + 1, end) if middle < end else []
        heartbeats = ("heartbeat",)
        whole = database.records(partition.token, start, end)
        assert [row for row in whole if row.kind not in heartbeats] == [
            row for row in parts if row.kind not in heartbeats
        ]
