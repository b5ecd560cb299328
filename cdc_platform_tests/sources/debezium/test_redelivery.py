"""What a restart brings again, in the middle of transactions too, changes nothing."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.sources.debezium.settings.settings import FilesInput
from cdc_platform_tests.sources.debezium.cycles import Cycles
from cdc_platform_tests.sources.debezium.written_events import (
    COLUMNS,
    TABLE,
    settings_with,
)
from cdc_platform_tests.support.debezium.connector import Connector, cycles_over, faults_of, feed, keys_of


def test_a_crash_in_the_middle_of_a_transaction(tmp_path: Path) -> None:
    """Nothing of it enters the log until it is whole, and then each event once."""
    sent = Connector()
    sent.whole(1)
    begun = len(sent.lines)
    sent.whole(2, 3, 4)
    cycles = feed(cycles_over(tmp_path), sent.lines[: begun + 3])
    assert keys_of(cycles) == [1]
    assert [(one["transaction_id"], one["seen"], one["expected"]) for one in cycles.waiting] == [
        ("702", 2, None)
    ]
    feed(cycles, sent.lines[begun:])
    assert keys_of(cycles) == [1, 2, 3, 4]
    assert [row["number_of_records_in_transaction"] for row in cycles.log] == [1, 3, 3, 3]
    assert cycles.waiting == []
    assert faults_of(cycles) == []


@pytest.mark.parametrize("again", [slice(-1, None), slice(-2, None), slice(0, None), slice(0, 1)])
def test_what_is_repeated_of_a_whole_transaction(tmp_path: Path, again: slice) -> None:
    """Its END, its tail without its BEGIN, all of it: nothing comes twice, nothing is refused."""
    sent = Connector()
    sent.whole(1, 2)
    first = len(sent.lines)
    sent.whole(3)
    cycles = feed(cycles_over(tmp_path), sent.lines[:first])
    feed(cycles, [*sent.lines[:first][again], *sent.lines[:first][-1:], *sent.lines[first:]])
    assert keys_of(cycles) == [1, 2, 3]
    assert faults_of(cycles) == []


def test_begin_twice_within_one_cycle(tmp_path: Path) -> None:
    """A restart in the middle, read at once, is one transaction."""
    sent = Connector()
    sent.whole(1, 2, 3)
    cycles = feed(cycles_over(tmp_path), [*sent.lines[:3], *sent.lines])
    assert keys_of(cycles) == [1, 2, 3]
    assert faults_of(cycles) == []


def test_a_repeated_truncate_takes_nothing_away(tmp_path: Path) -> None:
    """The tail that comes again has a truncate, and newer rows before it stay."""
    sent = Connector()
    sent.whole(1)
    sent.begin()
    sent.truncate()
    sent.insert(2)
    sent.end()
    sent.whole(3)
    cycles = feed(cycles_over(tmp_path), sent.lines)
    feed(cycles, sent.lines[3:])
    assert [row["mod_type"] for row in cycles.log] == ["INSERT", "TRUNCATE", "INSERT", "INSERT"]
    assert keys_of(cycles) == [1, None, 2, 3]


def test_orders_that_are_given_twice(tmp_path: Path) -> None:
    """After a restart within a COPY other rows have orders that were given: none of them is lost."""
    sent = Connector()
    sent.begin()
    for key in (1, 2, 3, 4):
        sent.insert(key, lsn=500)
    sent.order = 2
    for key in (5, 6):
        sent.insert(key, lsn=500)
    sent.end(6)
    cycles = feed(cycles_over(tmp_path), sent.lines)
    assert set(keys_of(cycles)) == {1, 2, 3, 4, 5, 6}
    assert faults_of(cycles) == []


def test_a_copy_has_one_position(tmp_path: Path) -> None:
    """Rows of one position, and equal rows without a key, all count, and only once when they come again."""
    sent = Connector()
    sent.begin()
    for key in range(20):
        sent.insert(key, lsn=500)
    for _ in range(5):
        sent.insert(None, 7, lsn=500)
        sent.lines[-1] = sent.lines[-1].replace('"orders"', '"items"')
    sent.end()
    columns = {**COLUMNS, "public.items": COLUMNS[TABLE]}
    told = settings_with(input=FilesInput(str(tmp_path)), has_transaction_topic=True, columns=columns)
    cycles = feed(Cycles(told), sent.lines)
    feed(cycles, sent.lines)
    assert len(cycles.log) == 25
    assert faults_of(cycles) == []


def test_positions_that_go_back(tmp_path: Path) -> None:
    """A transaction that wrote first and commits last has smaller positions, and one may begin at an END."""
    sent = Connector(commit=900, lsn=900)
    sent.whole(1)
    sent.begin()
    sent.insert(2, lsn=300)
    sent.insert(3, lsn=930)
    sent.end()
    sent.begin()
    sent.insert(4, lsn=sent.commit)
    sent.end()
    cycles = feed(cycles_over(tmp_path), sent.lines)
    assert keys_of(cycles) == [1, 2, 3, 4]


def test_a_transaction_that_is_short_is_held(tmp_path: Path) -> None:
    """Where END counts more than has come, all of it goes to quarantine with both numbers."""
    sent = Connector()
    sent.begin()
    sent.insert(1)
    sent.end(3)
    sent.whole(2)
    cycles = feed(cycles_over(tmp_path), sent.lines)
    assert faults_of(cycles) == [
        "Its transaction 701 has 3 events by the connector's word, of which 1 have come"
    ]
    assert [row["event"]["fault"] is None for row in cycles.log] == [False, True]


def test_the_rest_of_what_has_passed_is_not_called_short(tmp_path: Path) -> None:
    """What comes again from the middle of a transaction on, too late to be recognised, is named as that."""
    sent = Connector()
    sent.whole(1, 2, 3)
    cycles = feed(cycles_over(tmp_path), sent.lines)
    cycles.log = []
    again = sent.lines[2:]
    sent.whole(4)
    feed(cycles, [*again, *sent.lines[5:]])
    expected = "with a part of its transaction 701, which has passed before: 2 of 3 events have come"
    assert [f"It comes again {expected}"] * 2 == faults_of(cycles)
    assert keys_of(cycles) == [2, 3, 4]


def test_a_message_passes_with_its_transaction(tmp_path: Path) -> None:
    """It counts as one of its events, has its place among the changes, and comes once."""
    sent = Connector()
    sent.begin()
    sent.insert(1)
    sent.emit("MQ==")
    sent.insert(2)
    sent.end()
    sent.emit("Mg==", transactional=False)
    cycles = feed(cycles_over(tmp_path), sent.lines[:4])
    assert cycles.messages == []
    feed(cycles, sent.lines[4:])
    notes = sorted(cycles.messages, key=lambda row: str(row["record_order"]))
    told = [json.loads(row["event"]["metadata"]) for row in notes]
    assert [one["content"] for one in told] == ["1", "2"]
    assert [one["transaction"] for one in told] == ["701", None]
    orders = [str(row["record_order"]) for row in (cycles.log[0], notes[0], cycles.log[1])]
    assert sorted(orders) == orders
    assert [row["number_of_records_in_transaction"] for row in cycles.log] == [2, 2]


def test_a_file_that_cannot_be_read_holds_those_after_it(tmp_path: Path) -> None:
    """Later events must not enter the log before earlier ones."""
    sent = Connector()
    sent.whole(1)
    first = len(sent.lines)
    sent.whole(2)
    (tmp_path / "1.jsonl.gz").write_bytes(b"\x1f\x8bbroken")
    cycles = feed(cycles_over(tmp_path), sent.lines[first:], "2.jsonl")
    assert keys_of(cycles) == []
    (tmp_path / "1.jsonl.gz").write_bytes("".join(f"{one}\n" for one in sent.lines[:first]).encode())
    cycles.read()
    cycles.read()
    assert keys_of(cycles) == [1, 2]


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    """Return what a connector sends without a crash, and portions of what it sends with crashes."""
    sent = Connector()
    for first in range(draw(st.integers(1, 4))):
        sent.whole(*range(first * 10, first * 10 + draw(st.integers(1, 3))))
    lines, done, portions = sent.lines, 0, list[list[str]]()
    while done < len(lines):
        end = draw(st.integers(done + 1, len(lines)))
        again = draw(st.integers(0, done))
        portions.append(lines[again:end])
        done = end
    return lines, portions


@given(deliveries(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_portions_and_any_redelivery(
    delivery: tuple[list[str], list[list[str]]], is_spooled: bool
) -> None:
    """However messages are cut up, in one file or many, and from wherever repeated, the log is the same."""
    lines, portions = delivery
    with TemporaryDirectory() as folder:
        expected = feed(cycles_over(Path(folder)), lines)
    with TemporaryDirectory() as folder:
        cycles = cycles_over(Path(folder))
        for number, portion in enumerate(portions):
            feed(cycles, portion, f"{number if is_spooled else 0:03}.jsonl")
    assert keys_of(expected) == keys_of(cycles)
    assert faults_of(cycles) == []


def test_a_transaction_may_be_spread_over_files(tmp_path: Path) -> None:
    """What was held back of a file that is complete is read again once the rest has come in others."""
    sent = Connector()
    sent.whole(1)
    sent.whole(2, 3, 4)
    cycles = feed(cycles_over(tmp_path), sent.lines[:5], "1.jsonl")
    feed(cycles, sent.lines[5:7], "2.jsonl")
    assert keys_of(cycles) == [1]
    feed(cycles, sent.lines[7:], "3.jsonl")
    assert keys_of(cycles) == [1, 2, 3, 4]
    assert faults_of(cycles) == []
