"""Ordering keys: ties, backfills, epochs, and the user's own sequence."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.datastream.events.layouts import Form, Layout
from cdc_platform.sources.datastream.events.ordering_keys import (
    OrderRules,
    ordering_keys,
    sequence_keys,
    sequence_order,
)
from cdc_platform.sources.datastream.settings.kinds import SourceKind
from cdc_platform.sources.datastream.settings.policies import BackfillPolicy
from cdc_platform_tests.sources.datastream.generated_events import Event, to_run
from cdc_platform_tests.strategies import change_sequences, log_places

KINDS = tuple(SourceKind)
LOG = {"log_file": "mysql-bin.000001", "log_position": 100}
BY_CLOCK = OrderRules(BackfillPolicy.BY_SOURCE_TIMESTAMP)


def key(
    event: Event,
    rules: OrderRules | None = None,
    *,
    kind: SourceKind = SourceKind.MYSQL,
    backfill: bool = False,
    removal: bool = False,
    event_id: str = "u",
) -> str:
    """Return the ordering key of an event."""
    return ordering_keys(to_run(event), form(kind, backfill, removal), [event_id], rules or OrderRules())[0]


def form(kind: SourceKind = SourceKind.MYSQL, is_backfill: bool = False, is_removal: bool = False) -> Form:
    """Return the form of events of a table."""
    mod_type = ModType.DELETE if is_removal else ModType.UPDATE
    return Form(kind, Layout("shop.items", "[]", (), ()), mod_type, is_backfill, None)


def at(ms: int, **metadata: Any) -> Event:
    """Return a MySQL event of a moment, at one place in the log unless another is given."""
    return {"source_timestamp": ms, "source_metadata": {**LOG, **metadata}}


def test_a_key_is_readable() -> None:
    """A key names epoch, class, place, moment, half and event."""
    expected = "0000 1 00 000000000000000001 0000000000000064 000000000000007000 1 u"
    assert expected == key(at(7))


def test_the_writing_half_of_a_key_change_wins() -> None:
    """At one place and moment, a removal comes before a write, for any uuids."""
    assert key(at(0), removal=True, event_id="z") < key(at(0), event_id="a")


@pytest.mark.parametrize("removed_from", [None, [1, 200, 5], [0xFFFFFFFF, 9, 9]])
@pytest.mark.parametrize("written_to", [None, [0, 0, 1], [1, 100, 2], [1, 300, 2]])
def test_pages_of_sqlserver_do_not_show_what_came_last(
    removed_from: list[int] | None, written_to: list[int] | None
) -> None:
    """A row's page says where it lies; under one number the write wins, under another one the later."""
    removed, written, later = (
        {"source_timestamp": 0, "source_metadata": {"lsn": lsn, "physical_location": location}}
        for lsn, location in (
            ("25:728:3", removed_from),
            ("25:728:3", written_to),
            ("25:728:4", removed_from),
        )
    )
    item, other = (
        key(removed, kind=SourceKind.SQLSERVER, removal=True),
        key(written, kind=SourceKind.SQLSERVER),
    )
    assert item < other < key(later, kind=SourceKind.SQLSERVER, removal=True)


def test_a_stored_key_of_sqlserver_is_that_of_the_same_write_today() -> None:
    """Lakes keep keys of writes, and of removals that had the row's page: a write at it follows these."""
    place = "000000250000072800000003 00000001000000c800000005"
    event = {
        "source_timestamp": 7,
        "source_metadata": {"lsn": "00000025:00000728:0003", "physical_location": [1, 200, 5]},
    }
    assert f"0000 1 {place} 000000000000007000 1 u" == key(event, kind=SourceKind.SQLSERVER)
    assert key(event, kind=SourceKind.SQLSERVER, removal=True) < f"0000 1 {place} 000000000000007000 0 u"


def test_the_second_half_is_a_second_later() -> None:
    """MySQL stamps the writing half one second later than the removing one at the same place."""
    assert key(at(1000), removal=True) < key(at(2000)) < key(at(0, log_position=101), removal=True)


def test_events_of_one_statement_differ_by_their_counter() -> None:
    """Rows of one statement share their place; the last digits of the uuid count within a batch."""
    uuids = [f"b2bf6349-dfe8-4ed8-9cfb-5e30{n:08b}" for n in range(40)]
    keys = [key(at(0), event_id=uuid) for uuid in uuids]
    assert keys == sorted(set(keys))


def test_an_event_has_one_key_in_whatever_file_it_comes() -> None:
    """Position in the file and time of reading are not part of the order."""
    event = at(5)
    again = to_run({**event, "read_timestamp": 99, "schema_key": "other"}, position=17)
    assert ordering_keys(to_run(event, 3), form(), ["u"], OrderRules()) == ordering_keys(
        again, form(), ["u"], OrderRules()
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", [BackfillPolicy.INITIAL, BackfillPolicy.FORCE])
@settings(max_examples=20)
@given(data=st.data())
def test_a_backfill_loses_to_captured_changes_of_its_epoch(
    kind: SourceKind, policy: BackfillPolicy, data: st.DataObject
) -> None:
    """A row that a backfill read counts less than any captured change, whenever either happened."""
    _, captured = data.draw(log_places(kind))
    _, read = data.draw(log_places(kind))
    rules = OrderRules(policy)
    first = key(read, rules, kind=kind, backfill=True)
    assert first < key(captured, rules, kind=kind, removal=data.draw(st.booleans()))


@pytest.mark.parametrize(
    "metadata",
    [
        {"log_file": None, "log_position": None},  # mid-2021
        {"log_file": "", "log_position": 0},
        {},
    ],
)
def test_a_backfill_needs_no_place(metadata: dict[str, Any]) -> None:
    """A backfill's event has no place in the log; of two the later one wins."""
    read = [key({"source_timestamp": ms, "source_metadata": metadata}, backfill=True) for ms in (5, 6)]
    assert read == sorted(read)


@pytest.mark.parametrize("kind", [SourceKind.SALESFORCE, SourceKind.MYSQL, SourceKind.POSTGRESQL])
def test_by_source_timestamp_a_backfill_repairs_what_came_before(kind: SourceKind) -> None:
    """The backfill wins over changes before its read, and loses to simultaneous and later ones."""
    place = {SourceKind.POSTGRESQL: {"lsn": "1/1"}, SourceKind.MYSQL: LOG}.get(kind, {})
    events = {ms: {"source_timestamp": ms, "source_metadata": place} for ms in (999, 1000, 1001)}
    captured = {ms: key(event, BY_CLOCK, kind=kind) for ms, event in events.items()}
    read = key({"source_timestamp": 1000, "source_metadata": {}}, BY_CLOCK, kind=kind, backfill=True)
    assert captured[999] < read < captured[1000] < captured[1001]


def test_by_source_timestamp_oracle_compares_change_numbers() -> None:
    """Oracle's rows were read at a change number, which is exact; on the same one the change wins."""
    captured = {
        scn: key(
            {"source_timestamp": 9_000 - scn, "source_metadata": {"scn": scn, "rs_id": "0x1.1.1", "ssn": 0}},
            BY_CLOCK,
            kind=SourceKind.ORACLE,
        )
        for scn in (9, 10, 11)
    }
    read = {"source_timestamp": 0, "source_metadata": {"scn": 10, "rs_id": "", "ssn": 0}}
    backfill = key(read, BY_CLOCK, kind=SourceKind.ORACLE, backfill=True)
    assert captured[9] < backfill < captured[10] < captured[11]


def test_a_forced_backfill_repairs_everything_before_its_epoch() -> None:
    """From the declared moment on, what the backfill read beats all earlier changes and no later one."""
    rules = OrderRules(BackfillPolicy.FORCE, epochs=(1_000_000,))
    before, after = key(at(999, log_position=900), rules), key(at(1000, log_position=1), rules)
    assert before < key(at(1000), rules, backfill=True) < after
    assert key(at(999), rules, backfill=True) < before  # one of before the epoch repairs nothing


def test_an_initial_backfill_takes_no_part_in_epochs() -> None:
    """Epochs of the log do not make rows of a backfill count more than captured changes."""
    rules = OrderRules(epochs=(1_000_000,))
    assert key(at(5000), rules, backfill=True) < key(at(0), rules) < key(at(1000, log_position=1), rules)


def test_keys_of_before_a_forced_backfill_stay_as_they_are() -> None:
    """Declaring a future epoch changes no earlier key, so stored ones stay valid."""
    declared = OrderRules(BackfillPolicy.FORCE, epochs=(1_000_000,))
    assert [key(at(n)) for n in (0, 999)] == [key(at(n), declared) for n in (0, 999)]


def test_an_epoch_needs_a_moment() -> None:
    """Without a source timestamp the epoch of an event is unknown."""
    event = {"source_metadata": {}, "sort_keys": [1, 2]}
    assert key(event, kind=SourceKind.MONGODB).startswith("0000 1 ")
    with pytest.raises(RecordUnreadable, match="by which its epoch is known"):
        key(event, OrderRules(epochs=(5,)), kind=SourceKind.MONGODB)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rules", [OrderRules(), BY_CLOCK, OrderRules(BackfillPolicy.FORCE, (1_000_000,))])
@settings(max_examples=15)
@given(data=st.data())
def test_the_order_is_total(kind: SourceKind, rules: OrderRules, data: st.DataObject) -> None:
    """Different events never have the same key, and none is the beginning of another."""
    _, event = data.draw(log_places(kind))
    keys = [
        key(event, rules, kind=kind, backfill=backfill, removal=removal, event_id=uuid)
        for uuid in ("a", "b")
        for removal in (True, False)
        # Backfills of MongoDB have sort keys, those of Oracle change numbers.
        for backfill in (True, False)
    ]
    assert len(keys) == len(set(keys))
    assert not [item for item in keys for other in keys if item != other and other.startswith(item)]


def test_by_a_sequence_a_delete_wins_over_the_row_that_it_repeats() -> None:
    """A delete carries the sequence of the row that it removes, so it must win at an equal one."""
    event = to_run(at(0))
    write, removal = (form(is_removal=is_removal) for is_removal in (False, True))
    assert sequence_keys(event, write, ["u"], ["A/F"]) < sequence_keys(event, removal, ["u"], ["A/F"])
    assert sequence_keys(event, removal, ["u"], ["A/F"]) < sequence_keys(event, write, ["u"], ["a/10"])


def test_an_event_without_its_sequence_is_refused() -> None:
    """Rows with and without a sequence cannot be ordered."""
    with pytest.raises(RecordUnreadable, match="sequence_columns"):
        sequence_keys(to_run(at(0)), form(), ["u"], [None])


@pytest.mark.parametrize(
    ("greater", "smaller"),
    [
        # The examples of BigQuery's documentation.
        ("FFF/ABC", "FFF/B"),
        ("BA/FFFFFFFF", "AB/FFFFFFFF"),
        ("ABC", "BA/FFFFFFFF"),
        ("FFF/ABC", "ABC"),
        # A longer one follows those that it begins with.
        ("FFF/0", "FFF"),
        ("f/0/0/0", "F/0/0"),
        ("FFFFFFFFFFFFFFFF", "7FFFFFFFFFFFFFFF"),  # unsigned
    ],
)
def test_documented_order(greater: str, smaller: str) -> None:
    """Sections compare as unsigned numbers from left to right, also where something follows them."""
    assert sequence_order(greater) > sequence_order(smaller)
    assert f"{sequence_order(greater)} 0" > f"{sequence_order(smaller)} 1"


@pytest.mark.parametrize(
    "text", ["", "/", "1/", "1/2/3/4/5", "1" * 17, "G", "0x1", " 1", "1 ", "-1", "\u0661", "1//2", 7, None]
)
def test_everything_else_is_refused(text: object) -> None:
    """A fifth section, a seventeenth digit and what is not a hex digit are faults, not places in an order."""
    with pytest.raises(RecordUnreadable, match="one to four sections"):
        sequence_order(text)


@given(change_sequences(), change_sequences(), st.sampled_from(["", " 0", " 1"]))
def test_text_order_is_the_order_of_numbers(
    item: tuple[tuple[int, ...], str], other: tuple[tuple[int, ...], str], tail: str
) -> None:
    """Sequences compare as texts like tuples of their numbers, in every case and width."""
    (numbers, text), (other_numbers, other_text) = item, other
    ordered = f"{sequence_order(text)}{tail}" < f"{sequence_order(other_text)}{tail}"
    assert (numbers < other_numbers) == ordered
