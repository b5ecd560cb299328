"""The choice of quarantined records, and the records that have to be replayed with them."""

from dataclasses import replace

import pytest

from cdc_platform.model.base.names import lake_table_name
from cdc_platform.model.stream.quarantined_records import QuarantinedRecord, QuarantineFilter, with_related


def record_of(record: str, origin: str | None = None, cycle: int = 1) -> QuarantinedRecord:
    """Return a record in quarantine."""
    reason = "The event has no ordering key"
    return QuarantinedRecord(cycle, reason, "users", 0, record, f"{record}/{record}", "users", "{}", origin)


@pytest.mark.parametrize(
    ("chosen_by", "is_meant"),
    [
        (QuarantineFilter(), True),
        (QuarantineFilter(table="users", reason="ORDERING KEY", cycle=1, record="a"), True),
        (QuarantineFilter(record="shop.users/a/shop.users/a"), True),
        (QuarantineFilter(record="shop.users/a"), True),
        (QuarantineFilter(table="orders"), False),
        (QuarantineFilter(reason="corrupt"), False),
        (QuarantineFilter(cycle=2), False),
        (QuarantineFilter(record="b"), False),
    ],
)
def test_a_filter_narrows_by_all_that_it_names(chosen_by: QuarantineFilter, is_meant: bool) -> None:
    """An omitted filter narrows nothing."""
    assert is_meant is chosen_by.matches(record_of("shop.users/a"))


def test_a_filter_knows_a_table_by_its_name_in_the_lake() -> None:
    """The status shows that name; a record that names no table is of none."""
    record = replace(record_of("a"), table="shop.users")
    chosen_by = QuarantineFilter(table=lake_table_name("shop.users"))
    assert chosen_by.matches(record)
    assert not chosen_by.matches(replace(record, table=None))


def test_a_record_is_called_by_what_is_its_own() -> None:
    """An event without a transaction has one identity twice; one of a transaction has both parts."""
    assert record_of("a/b#3").name == "a/b#3"
    in_transaction = replace(record_of("a"), transaction_id="transaction", record_id="transaction/a")
    assert in_transaction.name == "transaction/a"
    assert [in_transaction.sequence, record_of("a/b#3").sequence] == ["a", "a/b#3"]


def test_halves_of_a_key_change_are_replayed_together() -> None:
    """They come from one place of the source's log: one was refused, the other one belongs to it."""
    refused = replace(record_of("a", "t"), record='{"record_order": "01 05 0002 1 09"}')
    neighbour = replace(record_of("b", "t"), record='{"ordering_key": "01 05 0001 0 08"}')
    records = [
        replace(record_of("c", "t"), record='{"record_order": "01 06 0003 1 10"}'),
        replace(record_of("d", "t"), record='{"record_order": ""}'),
        replace(record_of("e", "t"), record=None),
    ]
    everything = [refused, neighbour, *records]
    assert [refused, neighbour] == with_related([neighbour], everything, pairs_halves=True)
    assert [records[1]] == with_related([records[1]], everything, pairs_halves=True)
    assert [neighbour] == with_related([neighbour], everything)


def test_files_and_copies_of_an_event_are_replayed_along() -> None:
    """A file brings all of its records, and each of these all files that it lies in; a topic does not."""
    record, other, again, far = (
        record_of("a", "f"),
        record_of("b", "f"),
        record_of("b", "g", 2),
        record_of("c", "g", 2),
    )
    separate, in_topic, neighbour = record_of("d", "h"), record_of("e", "t"), record_of("g", "t")
    everything = [record, other, again, far, separate, in_topic, neighbour]
    files = {"f", "g", "h"}
    assert [record, other, again, far] == with_related([record], everything, files)
    assert [in_topic] == with_related([in_topic], everything, files)
    assert with_related([], everything, files) == []
