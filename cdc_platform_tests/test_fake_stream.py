"""The fake change stream keeps Spanner's guarantees, so that tests with it are valid."""

from collections import Counter

import pytest
from hypothesis import given

from cdc_platform.errors import PartitionBoundsInvalid
from cdc_platform.model.base.timestamps import from_datetime
from cdc_platform.model.stream.read_windows import ReadWindow, WindowOutcome
from cdc_platform.model.stream.records import RecordKind
from cdc_platform_tests.fake_stream import FakeChangeStream, ReadSchedule, raw_rows
from cdc_platform_tests.partition_tree import PartitionTree, Span
from cdc_platform_tests.strategies import streams
from cdc_platform_tests.support.history import History, RawRow, tables_at

Stream = tuple[History, ReadSchedule]

MERGING = PartitionTree(
    (
        Span("a", 0, 8, 1_000, 2_000, ()),
        Span("b", 8, 16, 1_000, 2_000, ()),
        Span("c", 0, 16, 2_000, None, ("a", "b")),
    ),
    start_micros=1_000,
)
EMPTY = FakeChangeStream(History((), (), 1_000), MERGING)


def identity(row: RawRow) -> tuple[str, str]:
    """Return what makes a data change record one and the same."""
    return row["server_transaction_id"], row["record_sequence"]


def data_rows(rows: tuple[RawRow, ...]) -> list[RawRow]:
    """Return the rows that are data change records."""
    return [row for row in rows if row["kind"] == RecordKind.DATA_CHANGE]


def assert_all_up_to_the_watermark_is_read(stream: Stream) -> None:
    """At each watermark the batches so far hold every record that was committed at or before it."""
    fake = FakeChangeStream(stream[0], stream[1].tree)
    seen: set[tuple[str, str]] = set()
    for batch in raw_rows(*stream):
        seen |= {identity(row) for row in data_rows(batch.rows)}
        expected = {entry.record_id for entry in fake.log(batch.watermark_micros)}
        assert expected <= {f"{transaction}/{sequence}" for transaction, sequence in seen}
    assert len(fake.records) == len(seen)


def assert_records_come_from_the_partition_of_their_key(stream: Stream) -> None:
    """Each record is announced with its transaction's counts, by a partition that lived at its commit."""
    history, schedule = stream
    fake = FakeChangeStream(history, schedule.tree)
    per_transaction = Counter(record.transaction.transaction_id for record in fake.records)
    for row in [row for batch in raw_rows(*stream) for row in data_rows(batch.rows)]:
        start, end = schedule.tree.life(row["partition_token"])
        assert start <= from_datetime(row["record_timestamp"]) < (end or 10**18)
        assert per_transaction[row["server_transaction_id"]] == row["number_of_records_in_transaction"]


def assert_changes_of_the_log_make_the_tables(stream: Stream) -> None:
    """Replaying the expected log key by key gives the rows of the serial history."""
    history, schedule = stream
    log = FakeChangeStream(history, schedule.tree).log()
    alive: dict[str, set[str]] = {table.name: set() for table in history.tables}
    for entry in log:
        keys = alive[entry.table_name]
        assert (entry.change_kind == "insert") == (entry.keys not in keys)
        (keys.discard if entry.change_kind == "delete" else keys.add)(entry.keys)
    expected = {name: len(rows) for name, rows in tables_at(history, history.end_micros).items()}
    assert expected == {name: len(keys) for name, keys in alive.items()}


@given(streams())
def test_any_stream_keeps_the_guarantees(stream: Stream) -> None:
    """All is read up to each watermark, from the partition of its key, and the log makes the tables."""
    assert_all_up_to_the_watermark_is_read(stream)
    assert_records_come_from_the_partition_of_their_key(stream)
    assert_changes_of_the_log_make_the_tables(stream)


def test_child_of_a_merge_is_announced_by_both_parents() -> None:
    """Each parent ends with the same child partitions record, and finishes just before the child."""
    for token in ("a", "b"):
        rows, report = EMPTY.read(ReadWindow(token, 999, 5_000))
        assert rows[0]["child_partitions"] == [{"token": "c", "parent_partition_tokens": ["a", "b"]}]
        assert (report.outcome, report.end_inclusive_micros) == (WindowOutcome.FINISHED, 1_999)


def test_read_from_the_end_of_a_partition_gives_only_its_children() -> None:
    """A window that begins where the partition ends still learns the children, and no later one does."""
    rows, report = EMPTY.read(ReadWindow("a", 1_999, 5_000))
    assert [row["kind"] for row in rows] == ["child_partitions", "read_window"]
    assert report.outcome is WindowOutcome.FINISHED
    with pytest.raises(PartitionBoundsInvalid, match="invalid for the partition"):
        EMPTY.read(ReadWindow("a", 2_000, 5_000))


def test_read_before_the_start_of_a_partition_is_refused() -> None:
    """A child may not be asked for what its parents returned."""
    with pytest.raises(PartitionBoundsInvalid, match="invalid for the partition"):
        EMPTY.read(ReadWindow("c", 1_998, 5_000))


def test_window_that_ends_before_its_partition_does_not_finish_it() -> None:
    """The last microsecond of a partition belongs to it, and its end is not yet known there."""
    rows, report = EMPTY.read(ReadWindow("a", 999, 1_999))
    assert [row["kind"] for row in rows] == ["heartbeat", "read_window"]
    assert (report.outcome, report.end_inclusive_micros) == (WindowOutcome.COMPLETE, 1_999)
