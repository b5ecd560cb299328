"""The transaction buffer: what passes, what it gives up, and what it reports as passed before."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.model.stream.records import AGAIN_SINCE, RecordKind
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.transactions.progress import STATE
from cdc_platform_tests.sources.debezium.cycles import Cycles, append
from cdc_platform_tests.sources.debezium.topic_logs import Place, TopicLogs
from cdc_platform_tests.sources.debezium.written_events import settings_with
from cdc_platform_tests.support.debezium.connector import Connector, cycles_over, faults_of, feed, keys_of


def test_an_end_that_is_lost(tmp_path: Path) -> None:
    """The next transaction shows that it has ended: its events are buffered, all others pass."""
    connector = Connector()
    connector.begin()
    connector.insert(1)
    connector.end()
    connector.lines.pop()
    cycles = feed(cycles_over(tmp_path), connector.lines)
    assert [item["transaction_id"] for item in cycles.waiting] == ["701"]
    first = len(connector.lines)
    connector.whole(2)
    connector.begin()
    feed(cycles, connector.lines[first:])
    assert keys_of(cycles) == [1, 2]
    (fault,) = faults_of(cycles)
    assert "Its transaction 701 has an unknown number of events" in fault
    assert "its END is missing" in fault
    assert [item["transaction_id"] for item in cycles.waiting] == ["703"]
    first = len(connector.lines)
    connector.insert(3)
    connector.whole(4)
    feed(cycles, connector.lines[first:])
    assert [row["event"]["fault"] is None for row in cycles.log] == [False, True, False, True]


def test_the_last_event_waits_for_its_other_half(tmp_path: Path) -> None:
    """A delete that names a new key, at the end of a file, enters the log with what comes next."""
    connector = Connector()
    connector.insert(1)
    connector.move(1, 2)
    connector.move(2, 3)
    left = len(connector.lines) - 1
    connector.insert(4)
    cycles = feed(Cycles(settings_with(input=FilesInput(str(tmp_path)))), connector.lines[:2])
    assert keys_of(cycles) == [1]
    feed(cycles, connector.lines[2:left])
    assert keys_of(cycles) == [1, 1, 2]
    feed(cycles, connector.lines[left + 1 :])
    assert keys_of(cycles) == [1, 1, 2, 2, 4]
    assert faults_of(cycles) == []


def test_what_comes_again_shows_no_end(tmp_path: Path) -> None:
    """An earlier transaction that is sent again does not end the one in which the connector has crashed."""
    connector = Connector()
    connector.whole(1)
    first = len(connector.lines)
    connector.whole(2, 3)
    cycles = feed(cycles_over(tmp_path), [*connector.lines[: first + 2], *connector.lines[:first]])
    assert keys_of(cycles) == [1]
    feed(cycles, connector.lines[first:])
    assert keys_of(cycles) == [1, 2, 3]
    assert faults_of(cycles) == []


def test_a_server_whose_positions_start_over() -> None:
    """A transaction committed later than all others is new, even with low positions."""
    logs = topic_logs()
    before, after = Connector(5000, 5000), Connector(100, 100, transaction=810)
    before.whole(1)
    after.whole(2, 3)
    after.whole(4)
    passed_by_cycle = []
    for lines in (before.lines, after.lines[:2], after.lines[2:], after.lines[1:3]):
        send(logs, lines)
        passed_by_cycle.append(
            sorted((row["mods"][0]["keys"], row["event"]["fault"]) for row in logs.cycle())
        )
    assert passed_by_cycle[:3] == [[('{"id":1}', None)], [], [(f'{{"id":{key}}}', None) for key in (2, 3, 4)]]
    assert all("has passed before" in fault for _, fault in passed_by_cycle[3])


@pytest.mark.parametrize("has_event", [False, True])
def test_a_transaction_of_the_future_gives_nothing_up(has_event: bool) -> None:
    """A commit time far ahead does not make later transactions count as repeated."""
    logs, connector = topic_logs(), Connector()
    connector.whole(1, 2)
    ahead = Connector(2**62, 2**62, transaction=4_000_000_000_000)
    ahead.whole(*([9] if has_event else []))
    rows = []
    for lines in (ahead.lines, connector.lines[:2], connector.lines[2:]):
        send(logs, lines)
        rows.append(found_in(logs.cycle()))
    assert rows[1:] == [[], [('{"id":1}', None), ('{"id":2}', None)]]


def test_a_time_beyond_64_bits_keeps_no_transaction_waiting(tmp_path: Path) -> None:
    """A BEGIN may state a number of 64 bits of milliseconds, which has more bits in microseconds."""
    connector = Connector()
    connector.whole(1)
    begin = json.loads(connector.lines[0])
    begin["value"]["ts_ms"] = 2**62
    connector.whole(2)
    cycles = feed(cycles_over(tmp_path), [json.dumps(begin), *connector.lines[1:]])
    assert keys_of(cycles) == [1, 2]


def test_the_longest_patience_has_no_end() -> None:
    """A user who never gives a transaction up may state a hundred years."""
    logs, connector = topic_logs(3e9), Connector()
    connector.whole(1, 2)
    send(logs, connector.lines[:-1])
    assert logs.cycle() == []
    send(logs, connector.lines[-1:])
    assert found_in(logs.cycle()) == [('{"id":1}', None), ('{"id":2}', None)]


def topic_logs(patience_s: float = KafkaInput.transaction_patience_s, **rest: Any) -> TopicLogs:
    """Return logs of topics whose connector reports transactions."""
    kafka = KafkaInput("localhost:9092", ".*", transaction_patience_s=patience_s)
    return TopicLogs(settings_with(input=kafka, has_transaction_topic=True, **rest), kafka)


def send(logs: TopicLogs, lines: Sequence[str]) -> list[Place]:
    """Append messages to the logs; return the partition of each."""
    messages = [{"headers": None, "timestamp": 1, **json.loads(text)} for text in lines]
    return [logs.append({**item, "topic": item["topic"].removeprefix("s.")}, 2) for item in messages]


def found_in(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """Return the keys and faults of rows."""
    return sorted((row["mods"][0]["keys"], row["event"]["fault"]) for row in rows)


def test_an_empty_transaction_does_not_overtake_one_that_waits() -> None:
    """The waiting transaction enters the log once it is whole, in any later cycle."""
    logs, connector = topic_logs(), Connector()
    connector.begin()
    connector.insert(1)
    connector.insert(2)
    connector.end()
    connector.begin()
    connector.end()
    _, lagging, other, *_ = send(logs, connector.lines)
    assert lagging != other
    first = {place: len(log) for place, log in logs.logs.items()} | {lagging: 0}
    heartbeat = {"topic": "__debezium-heartbeat.s", "key": {"serverName": "s"}, "value": {"ts_ms": 1}}
    second = {**first, logs.append({**heartbeat, "headers": None, "timestamp": 1}, 1): 1}
    cycles = [found_in(logs.cycle(ends)) for ends in (first, second, None)]
    assert cycles == [[], [], [('{"id":1}', None), ('{"id":2}', None)]]


def test_a_signal_keeps_no_transaction_waiting() -> None:
    """A row of the signal table counts for its own transaction, once, in any order of partitions."""
    logs, connector = topic_logs(signal_table="public.signals"), Connector()
    connector.begin()
    connector.insert(1)
    connector.insert(2)
    signal = json.loads(connector.lines.pop())
    signal["value"]["source"]["table"] = "signals"
    signal = json.dumps({**signal, "topic": "s.public.signals"})
    connector.lines += [signal, signal]
    connector.insert(3)
    connector.end()
    send(logs, [*connector.lines[:-2], connector.lines[-1]])
    assert logs.cycle() == []
    send(logs, connector.lines[-2:-1])
    assert found_in(logs.cycle()) == [('{"id":1}', None), ('{"id":3}', None)]


def test_what_seems_to_have_passed_is_reported(tmp_path: Path) -> None:
    """The report says when the first was committed of what comes again, so that all of it is looked for."""
    connector = Connector()
    connector.whole(1)
    connector.whole(2)
    again = len(connector.lines)
    connector.whole(3)
    cycles = cycles_over(tmp_path)
    repeated = []
    for lines in (connector.lines[:again], connector.lines[:again], connector.lines[again:]):
        append(tmp_path / "events.jsonl", lines)
        reports = [row["event"] for row in cycles.read() if row["kind"] == RecordKind.FILE]
        states = [json.loads(report["metadata"]) for report in reports if report["origin"] == STATE]
        repeated += [state.get(AGAIN_SINCE) for state in states]
    assert repeated == [None, 1_700_000_000_701_000, None]
