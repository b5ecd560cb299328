"""Which records of a quarantine are meant, and which have to be replayed along."""

from dataclasses import replace

import pytest

from cdc_platform.model.stream.quarantined_records import HeldFilter, HeldRecord, with_company


def held(record: str, origin: str | None = None, cycle: int = 1) -> HeldRecord:
    """Return a record in quarantine."""
    reason = "The event has no ordering key"
    return HeldRecord(cycle, reason, "users", 0, record, f"{record}/{record}", "users", "{}", origin)


@pytest.mark.parametrize(
    ("wanted", "is_meant"),
    [
        (HeldFilter(), True),
        (HeldFilter(table="users", reason="ORDERING KEY", cycle=1, record="a"), True),
        (HeldFilter(record="shop.users/a/shop.users/a"), True),
        (HeldFilter(record="shop.users/a"), True),
        (HeldFilter(table="orders"), False),
        (HeldFilter(reason="corrupt"), False),
        (HeldFilter(cycle=2), False),
        (HeldFilter(record="b"), False),
    ],
)
def test_a_filter_narrows_by_all_that_it_names(wanted: HeldFilter, is_meant: bool) -> None:
    """Whatever a filter leaves out narrows nothing."""
    assert is_meant is wanted.matches(held("shop.users/a"))


def test_a_record_is_called_by_what_is_its_own() -> None:
    """An event without a transaction has one identity twice; one of a transaction has both parts."""
    assert held("a/b#3").name == "a/b#3"
    in_transaction = replace(held("a"), transaction_id="transaction", record_id="transaction/a")
    assert in_transaction.name == "transaction/a"
    assert [in_transaction.sequence, held("a/b#3").sequence] == ["a", "a/b#3"]


def test_halves_of_a_key_change_are_replayed_together() -> None:
    """They come from one place of the source's log: one was refused by itself, the other one with it."""
    refused = replace(held("a", "t"), record='{"record_order": "01 05 0002 1 09"}')
    beside = replace(held("b", "t"), record='{"ordering_key": "01 05 0001 0 08"}')
    others = [
        replace(held("c", "t"), record='{"record_order": "01 06 0003 1 10"}'),
        replace(held("d", "t"), record='{"record_order": ""}'),
        replace(held("e", "t"), record=None),
    ]
    everything = [refused, beside, *others]
    assert [refused, beside] == with_company([beside], everything, pairs_halves=True)
    assert [others[1]] == with_company([others[1]], everything, pairs_halves=True)
    assert [beside] == with_company([beside], everything)


def test_files_and_copies_of_an_event_are_replayed_along() -> None:
    """A file brings all of its records, and each of these all files that it lies in; a topic does not."""
    one, other, again, far = held("a", "f"), held("b", "f"), held("b", "g", 2), held("c", "g", 2)
    apart, in_topic, beside = held("d", "h"), held("e", "t"), held("g", "t")
    everything = [one, other, again, far, apart, in_topic, beside]
    files = {"f", "g", "h"}
    assert [one, other, again, far] == with_company([one], everything, files)
    assert [in_topic] == with_company([in_topic], everything, files)
    assert with_company([], everything, files) == []
