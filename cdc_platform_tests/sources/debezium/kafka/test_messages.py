"""Messages distributed over splits: those of a transaction stay together, for any column names."""

import json
from typing import Any, Final

import pyarrow as pa
import pytest

from cdc_platform.sources.debezium.kafka.messages import ARRIVED, MESSAGES, ROUTE, MessageRouter
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform_tests.sources.debezium.topic_logs import TopicLogs
from cdc_platform_tests.sources.debezium.written_events import envelope, line, settings_with

KAFKA: Final = KafkaInput("localhost:9092", ".*")
SNAPSHOT: Final = {"snapshot": "true"}


def routed(*values: Any, micros: tuple[int, ...] = (), spreads_snapshots: bool = False) -> pa.Table:
    """Return messages of a partition with what the router says of them."""
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "offset": number,
            "micros": micros[number] if micros else number,
            "value": None if value is None else json.dumps(value, separators=(",", ":")).encode(),
        }
        for number, value in enumerate(values)
    ]
    batches = pa.Table.from_pylist(rows, MESSAGES).to_batches(max_chunksize=2)
    return pa.Table.from_batches(MessageRouter(4, spreads_snapshots)(batches))


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
    ],
)
def test_messages_of_a_transaction_have_one_route(value: Any) -> None:
    """The transaction is that of the source, not a column that is called so or a text that looks so."""
    assert routed(value)[ROUTE].to_pylist() == ["7"]


def test_messages_without_a_transaction_have_the_empty_route() -> None:
    """Tombstones and heartbeats belong to no transaction."""
    assert routed(None, {"ts_ms": 1}, "text")[ROUTE].to_pylist() == ["", "", ""]


@pytest.mark.parametrize(("spreads_snapshots", "routes"), [(False, {"7"}), (True, {"t/0/0", "t/0/1"})])
def test_rows_of_a_first_snapshot_are_spread(*, spreads_snapshots: bool, routes: set[str]) -> None:
    """They have one transaction, which means nothing; rows of a snapshot that replaces tables do not part."""
    rows = [envelope("r", after={"id": 1}, source=SNAPSHOT)] * 5_001
    assert routes == set(routed(*rows, spreads_snapshots=spreads_snapshots)[ROUTE].to_pylist())


def test_a_partition_keeps_its_order() -> None:
    """Times of arrival never decrease, for any sender's clock, across batches."""
    assert routed(1, 2, 3, 4, 5, micros=(5, 9, 2, 3, 11))[ARRIVED].to_pylist() == [5, 9, 9, 9, 11]


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
