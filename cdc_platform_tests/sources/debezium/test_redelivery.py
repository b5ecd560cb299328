"""Events that a restart sends again, in the middle of transactions too, change nothing."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.cycles import Cycles
from cdc_platform_tests.sources.debezium.written_events import (
    COLUMNS,
    TABLE,
    settings_with,
)
from cdc_platform_tests.strategies import share_of_profile
from cdc_platform_tests.support.debezium.connector import Connector, cycles_over, faults_of, feed, keys_of


def test_a_crash_in_the_middle_of_a_transaction(tmp_path: Path) -> None:
    """Nothing of it enters the log until it is whole, and then each event once."""
    connector = Connector()
    connector.whole(1)
    begun = len(connector.lines)
    connector.whole(2, 3, 4)
    cycles = feed(cycles_over(tmp_path), connector.lines[: begun + 3])
    assert keys_of(cycles) == [1]
    assert [(item["transaction_id"], item["seen"], item["expected"]) for item in cycles.waiting] == [
        ("702", 2, None)
    ]
    feed(cycles, connector.lines[begun:])
    assert keys_of(cycles) == [1, 2, 3, 4]
    assert [row["number_of_records_in_transaction"] for row in cycles.log] == [1, 3, 3, 3]
    assert cycles.waiting == []
    assert faults_of(cycles) == []


@pytest.mark.parametrize("again", [slice(-1, None), slice(-2, None), slice(0, None), slice(0, 1)])
def test_what_is_repeated_of_a_whole_transaction(tmp_path: Path, again: slice) -> None:
    """Its END, its tail without its BEGIN, all of it: nothing comes twice, nothing is refused."""
    connector = Connector()
    connector.whole(1, 2)
    first = len(connector.lines)
    connector.whole(3)
    cycles = feed(cycles_over(tmp_path), connector.lines[:first])
    feed(cycles, [*connector.lines[:first][again], *connector.lines[:first][-1:], *connector.lines[first:]])
    assert keys_of(cycles) == [1, 2, 3]
    assert faults_of(cycles) == []


def test_begin_twice_within_one_cycle(tmp_path: Path) -> None:
    """A restart in the middle, read at once, is one transaction."""
    connector = Connector()
    connector.whole(1, 2, 3)
    cycles = feed(cycles_over(tmp_path), [*connector.lines[:3], *connector.lines])
    assert keys_of(cycles) == [1, 2, 3]
    assert faults_of(cycles) == []


def test_a_repeated_truncate_takes_nothing_away(tmp_path: Path) -> None:
    """The tail that comes again has a truncate, and newer rows before it stay."""
    connector = Connector()
    connector.whole(1)
    connector.begin()
    connector.truncate()
    connector.insert(2)
    connector.end()
    connector.whole(3)
    cycles = feed(cycles_over(tmp_path), connector.lines)
    feed(cycles, connector.lines[3:])
    assert [row["mod_type"] for row in cycles.log] == ["INSERT", "TRUNCATE", "INSERT", "INSERT"]
    assert keys_of(cycles) == [1, None, 2, 3]


def test_orders_that_are_given_twice(tmp_path: Path) -> None:
    """After a restart within a COPY other rows have orders that were given: none of them is lost."""
    connector = Connector()
    connector.begin()
    for key in (1, 2, 3, 4):
        connector.insert(key, lsn=500)
    connector.order = 2
    for key in (5, 6):
        connector.insert(key, lsn=500)
    connector.end(6)
    cycles = feed(cycles_over(tmp_path), connector.lines)
    assert set(keys_of(cycles)) == {1, 2, 3, 4, 5, 6}
    assert faults_of(cycles) == []


def test_a_copy_has_one_position(tmp_path: Path) -> None:
    """Rows of one position, and equal rows without a key, all count, and only once when they come again."""
    connector = Connector()
    connector.begin()
    for key in range(20):
        connector.insert(key, lsn=500)
    for _ in range(5):
        connector.insert(None, 7, lsn=500)
        connector.lines[-1] = connector.lines[-1].replace('"orders"', '"items"')
    connector.end()
    columns = {**COLUMNS, "public.items": COLUMNS[TABLE]}
    settings = settings_with(input=FilesInput(str(tmp_path)), has_transaction_topic=True, columns=columns)
    cycles = feed(Cycles(settings), connector.lines)
    feed(cycles, connector.lines)
    assert len(cycles.log) == 25
    assert faults_of(cycles) == []


def test_positions_that_go_back(tmp_path: Path) -> None:
    """A transaction that wrote first and commits last has smaller positions, and one may begin at an END."""
    connector = Connector(commit=900, lsn=900)
    connector.whole(1)
    connector.begin()
    connector.insert(2, lsn=300)
    connector.insert(3, lsn=930)
    connector.end()
    connector.begin()
    connector.insert(4, lsn=connector.commit)
    connector.end()
    cycles = feed(cycles_over(tmp_path), connector.lines)
    assert keys_of(cycles) == [1, 2, 3, 4]


def test_a_transaction_that_is_short_waits(tmp_path: Path) -> None:
    """Where END counts more than has come, all of it goes to quarantine with both numbers."""
    connector = Connector()
    connector.begin()
    connector.insert(1)
    connector.end(3)
    connector.whole(2)
    cycles = feed(cycles_over(tmp_path), connector.lines)
    assert faults_of(cycles) == [
        "Its transaction 701 has 3 events according to the connector, of which 1 have come"
    ]
    assert [row["event"]["fault"] is None for row in cycles.log] == [False, True]


def test_the_rest_of_what_has_passed_is_not_called_short(tmp_path: Path) -> None:
    """A transaction that is resent from its middle, too late to be recognised, is reported as such."""
    connector = Connector()
    connector.whole(1, 2, 3)
    cycles = feed(cycles_over(tmp_path), connector.lines)
    cycles.log = []
    again = connector.lines[2:]
    connector.whole(4)
    feed(cycles, [*again, *connector.lines[5:]])
    expected = "with a part of its transaction 701, which has passed before: 2 of 3 events have come"
    assert [f"It comes again {expected}"] * 2 == faults_of(cycles)
    assert keys_of(cycles) == [2, 3, 4]


def test_a_message_passes_with_its_transaction(tmp_path: Path) -> None:
    """It counts as one of its events, has its place among the changes, and comes once."""
    connector = Connector()
    connector.begin()
    connector.insert(1)
    connector.emit("MQ==")
    connector.insert(2)
    connector.end()
    connector.emit("Mg==", transactional=False)
    cycles = feed(cycles_over(tmp_path), connector.lines[:4])
    assert cycles.messages == []
    feed(cycles, connector.lines[4:])
    notes = sorted(cycles.messages, key=lambda row: str(row["record_order"]))
    contents = [json.loads(row["event"]["metadata"]) for row in notes]
    assert [item["content"] for item in contents] == ["1", "2"]
    assert [item["transaction"] for item in contents] == ["701", None]
    orders = [str(row["record_order"]) for row in (cycles.log[0], notes[0], cycles.log[1])]
    assert sorted(orders) == orders
    assert [row["number_of_records_in_transaction"] for row in cycles.log] == [2, 2]


def test_a_file_that_cannot_be_read_holds_those_after_it(tmp_path: Path) -> None:
    """Later events must not enter the log before earlier ones."""
    connector = Connector()
    connector.whole(1)
    first = len(connector.lines)
    connector.whole(2)
    (tmp_path / "1.jsonl.gz").write_bytes(b"\x1f\x8bbroken")
    cycles = feed(cycles_over(tmp_path), connector.lines[first:], "2.jsonl")
    assert keys_of(cycles) == []
    (tmp_path / "1.jsonl.gz").write_bytes("".join(f"{item}\n" for item in connector.lines[:first]).encode())
    cycles.read()
    cycles.read()
    assert keys_of(cycles) == [1, 2]


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    """Return what a connector sends without a crash, and portions of what it sends with crashes."""
    connector = Connector()
    for first in range(draw(st.integers(1, 4))):
        connector.whole(*range(first * 10, first * 10 + draw(st.integers(1, 3))))
    lines, done, portions = connector.lines, 0, list[list[str]]()
    while done < len(lines):
        end = draw(st.integers(done + 1, len(lines)))
        again = draw(st.integers(0, done))
        portions.append(lines[again:end])
        done = end
    return lines, portions


@given(deliveries(), st.booleans())
@share_of_profile(0.6)
def test_any_portions_and_any_redelivery(
    delivery: tuple[list[str], list[list[str]]], is_spooled: bool
) -> None:
    """For any distribution over files, and any repetition, the log is the same."""
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
    """Buffered lines of a complete file are read again once others bring the rest."""
    connector = Connector()
    connector.whole(1)
    connector.whole(2, 3, 4)
    cycles = feed(cycles_over(tmp_path), connector.lines[:5], "1.jsonl")
    feed(cycles, connector.lines[5:7], "2.jsonl")
    assert keys_of(cycles) == [1]
    feed(cycles, connector.lines[7:], "3.jsonl")
    assert keys_of(cycles) == [1, 2, 3, 4]
    assert faults_of(cycles) == []
