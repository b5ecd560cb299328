"""Messages dealt out to splits: those of a transaction stay together, for any column names."""

import json
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.sources.debezium.kafka import message_dealer
from cdc_platform.sources.debezium.kafka.message_dealer import MessageDealer, messages_of
from cdc_platform.sources.debezium.kafka.messages import MESSAGES, in_order
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.splits.outcome import SPLIT
from cdc_platform_tests.sources.debezium.topic_logs import TopicLogs
from cdc_platform_tests.sources.debezium.written_events import envelope, line, settings_with

KAFKA: Final = KafkaInput("localhost:9092", ".*")
SNAPSHOT: Final = {"snapshot": "true"}


def batches_of(*values: Any, separators: tuple[str, str] = (",", ":")) -> list[pa.RecordBatch]:
    """Return messages of a partition, with these separators in their texts."""
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "offset": number,
            "micros": number,
            "value": None if value is None else json.dumps(value, separators=separators).encode(),
        }
        for number, value in enumerate(values)
    ]
    batches: list[pa.RecordBatch] = pa.Table.from_pylist(rows, MESSAGES).to_batches(max_chunksize=2)
    return batches


def routes_of(*values: Any, spreads_snapshots: bool = False) -> list[str]:
    """Return the routes of messages of a partition, which are the same with spaces in the texts."""
    dealer = MessageDealer(4, spreads_snapshots)
    compact, spaced = (
        [
            route
            for batch in batches_of(*values, separators=separators)
            for route in dealer.routes(batch).to_pylist()
        ]
        for separators in ((",", ":"), (", ", ": "))
    )
    assert compact == spaced
    return compact


@pytest.mark.parametrize(
    "value",
    [
        envelope("c", after={"id": 1, "txId": 3}),
        envelope("u", before={"txId": 4, "status": "BEGIN", "id": "5:6"}, after={"id": "8:9"}),
        envelope("c", after={"text": '"source":{"txId":99}'}, transaction={"id": "7:500", "total_order": 1}),
        {"schema": {"fields": [{"field": "txId"}]}, "payload": envelope("d", before={"id": 1})},
        {"status": "BEGIN", "id": "7:500", "event_count": None},
        {"status": "END", "id": "7:505", "event_count": 1},
        {"id": 1, "__op": "c", "__txId": 7},
        {"id": 1, "__op": "c", "__source_txId": 7},
        {"id": 1, "__op": "c", "__txId": 7, "parent_txId": 9},
        envelope("c", after={"id": 1}) | {"message": {"prefix": "txId", "content": "aa"}},
    ],
)
def test_messages_of_a_transaction_have_one_route(value: Any) -> None:
    """The transaction is that of the source, not a column that is called so or a text that looks so."""
    assert routes_of(value) == ["7"]


def test_messages_without_a_transaction_have_the_empty_route() -> None:
    """Tombstones and heartbeats belong to no transaction."""
    assert routes_of(None, {"ts_ms": 1}, "text") == ["", "", ""]


@pytest.mark.parametrize("begin", [0, 1])
def test_a_tombstone_goes_to_the_split_of_the_message_before_it(begin: int) -> None:
    """Even if that message is dealt out by the task that reads the messages before these."""
    delete = envelope("d", before={"id": 1}, source={"txId": 7})
    (block,) = MessageDealer(1_000)(batches_of(delete))
    dealt = pa.Table.from_batches(MessageDealer(1_000)(batches_of(delete, None), {("t", 0): begin}))
    assert block.column(SPLIT).to_pylist() == dealt.column(SPLIT).to_pylist()
    messages = in_order(messages_of(dealt.to_batches()))
    assert [*range(begin, 2)] == [message.offset for message in messages]


@pytest.mark.parametrize(("spreads_snapshots", "routes"), [(False, {"7"}), (True, {"t/0/0", "t/0/1"})])
def test_rows_of_a_first_snapshot_are_spread(*, spreads_snapshots: bool, routes: set[str]) -> None:
    """They have one transaction, which means nothing; rows of a snapshot that replaces tables do not part."""
    rows = [envelope("r", after={"id": 1}, source=SNAPSHOT)] * 5_001
    assert routes == set(routes_of(*rows, spreads_snapshots=spreads_snapshots))


@given(numbers=st.lists(st.integers(0, 99), max_size=30), splits=st.integers(1, 5))
def test_each_message_is_dealt_out_once(numbers: list[int], splits: int) -> None:
    """All messages of a transaction are in one split, in their order; blocks have several of them."""
    values = [envelope("c", after={"id": 1}, source={"txId": number}) for number in numbers]
    dealt: dict[int, list[int | None]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_dealer, "DEALT_BYTES", 2_000)
        blocks = list(MessageDealer(splits)(batches_of(*values)))
    for block in blocks:
        for number in range(block.num_rows):
            messages = in_order(messages_of([block.slice(number, 1)]))
            split = block.column(SPLIT)[number].as_py()
            dealt.setdefault(split, []).extend(message.offset for message in messages)
    assert [*range(len(numbers))] == sorted(offset or 0 for part in dealt.values() for offset in part)
    assert all(part == sorted(part, key=lambda offset: offset or 0) for part in dealt.values())
    of_transactions = {(numbers[offset or 0], split) for split, part in dealt.items() for offset in part}
    assert len(of_transactions) == len(set(numbers))
    assert set(dealt) <= set(range(splits))


def test_splits_are_of_similar_sizes() -> None:
    """Numbers of transactions that differ in a few digits only are spread as well as others."""
    values = [envelope("c", after={"id": 1}, source={"txId": 1_000_000 + 100 * n}) for n in range(8_000)]
    (block,) = MessageDealer(8)(batches_of(*values))
    sizes = [len(list(in_order(messages_of([block.slice(number, 1)])))) for number in range(block.num_rows)]
    assert (len(sizes), 900 < min(sizes) <= max(sizes) < 1_100) == (8, True)


@pytest.mark.parametrize("transaction", range(1, 13))
def test_splits_that_depend_on_a_later_one_are_decoded_again(transaction: int) -> None:
    """A change may depend on a snapshot of another split, for any numbering of the splits."""
    rows = []
    for splits in (1, 7):
        logs = TopicLogs(settings_with(input=KAFKA), KAFKA, splits=splits)
        for sent, messages in enumerate(_dependent(transaction)):
            for text in messages:
                logs.append({**json.loads(text), "headers": None, "timestamp": sent}, 1)
            rows.append(sorted(json.dumps(row, default=str, sort_keys=True) for row in logs.cycle()))
    assert rows[:2] == rows[2:]


def _dependent(transaction: int) -> list[list[str]]:
    """Return messages of two cycles; the last one's ordering key depends on the snapshot before it."""
    first, again = (
        envelope("r", after={"id": 1, "n": lsn}, source={**SNAPSHOT, "lsn": lsn, "sequence": None})
        for lsn in (300, 900)
    )
    place = {"txId": transaction, "lsn": 880, "sequence": '[null,"880"]'}
    change = envelope("u", after={"id": 1, "n": 3}, source=place)
    return [[line(first, {"id": 1})], [line(again, {"id": 1}), line(change, {"id": 1})]]
