"""Topics that got partitions after a snapshot was sent to the first ones, read as a backlog."""

import json
from typing import Final

import pytest

from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform_tests.sources.debezium.applied_changes import Lake, row_change_of, rows_of
from cdc_platform_tests.sources.debezium.topic_logs import TopicLogs
from cdc_platform_tests.sources.debezium.written_events import TABLE, settings_with
from cdc_platform_tests.support.debezium.connector import WAL_BEFORE, Connector
from cdc_platform_tests.support.debezium.snapshots import snapshot

KEYS: Final = range(1, 61)


@pytest.mark.parametrize("max_messages", [3, 20, 50])
def test_rows_of_a_snapshot_are_read_before_changes_in_added_partitions(max_messages: int) -> None:
    """A row that a cycle reads after a later one has read its change would undo the change."""
    connector = Connector()
    for key in reversed(KEYS):
        connector.begin()
        connector.update(key, n=2)
        connector.end()
    kafka = KafkaInput("localhost:9092", ".*", max_messages=max_messages)
    logs = TopicLogs(settings_with(input=kafka, has_transaction_topic=True), kafka)
    rows = snapshot(WAL_BEFORE, KEYS)
    for millis, text in enumerate([*rows, *connector.lines]):
        message = {"headers": None, **json.loads(text), "timestamp": millis}
        logs.append(message, 1 if millis < len(rows) else 4)
    lake, before = Lake(), ""
    while before != str(logs.read_progress):
        before = str(logs.read_progress)
        changes = sorted(logs.cycle(), key=lambda row: str(row["record_order"]))
        lake.take([row_change_of(row) for row in changes])
    assert [2] * len(KEYS) == [row["n"] for row in rows_of(lake.tables, TABLE)]
