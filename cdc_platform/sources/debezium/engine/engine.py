"""The embedded engine in its own process: from the source's log to a spool.

Spark has its own Java machine, and a Python process can hold only one, so the engine never runs in the
process of a pipeline. As a program, it reads its order as one line of JSON from its standard input. It ends
when that closes, on SIGTERM and SIGINT, or once it has caught up if the order says so.
"""

import errno
import json
import logging
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cdc_platform.errors import CaptureStopped, CdcError, DiskFull, SettingError
from cdc_platform.model.base.declared_settings import read_json, to_json
from cdc_platform.private_files import write_whole
from cdc_platform.sources.debezium.engine.batches import BatchWriter, Run
from cdc_platform.sources.debezium.engine.engine_failures import failure_of
from cdc_platform.sources.debezium.engine.engine_source import (
    check_capturable,
    emit_marker,
    read_comments,
    read_tables,
    read_uncaptured,
)
from cdc_platform.sources.debezium.engine.jvm import archive_classes, start_java
from cdc_platform.sources.debezium.engine.new_tables import NewTables
from cdc_platform.sources.debezium.engine.slot import check_commits
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.engine.spool_files import reported_as_unusable
from cdc_platform.sources.debezium.engine.stored_offsets import prepare_offsets, stored_commits
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput

LOGGER: Final = logging.getLogger(__name__)
STOP_WITHIN_S: Final = 40.0
LOOK_EVERY_S: Final = 0.1
NEXT_MARKER_AFTER_S: Final = 10.0


@dataclass(frozen=True)
class Order:
    """Instructions for an engine.

    Args:
        settings: the database to capture, and the spool.
        report_to: file descriptor to which the engine writes one byte once it has captured everything
            committed before its start.
    """

    settings: EngineInput
    report_to: int | None = None

    def to_json(self) -> str:
        """Return the order as a line of JSON, which contains the password."""
        return json.dumps({"report_to": self.report_to, "settings": to_json(self.settings)})

    @classmethod
    def from_json(cls, text: str) -> "Order":
        """Parse an order of `to_json`."""
        fields = json.loads(text)
        return cls(read_json(EngineInput, fields["settings"]), fields["report_to"])


def capture(order: Order, run: Run) -> None:
    """Run the engine until it is stopped.

    Raises:
        CdcError: the failure that ended it; everything in the spool is complete, and a new start resumes.
    """
    settings = order.settings
    spool = Spool(settings.folder())
    run.report_to = order.report_to
    with spool.open_writer(settings.identity()) as writer:
        start_java(spool.log)
        restart_lsn = check_capturable(settings)
        with reported_as_unusable(spool.folder):
            _keep_comments(spool, settings)
            check_commits(settings, stored_commits(spool))
            prepare_offsets(spool, restart_lsn)
            uncaptured = read_uncaptured(settings)
            new_tables = NewTables(spool, settings, read_tables(settings), uncaptured.selects)
        own = new_tables.properties | settings.connector_properties(spool.offsets, spool.signals)
        properties = own | uncaptured.properties(settings, own)
        engine = _build(properties, BatchWriter(writer, settings, run, new_tables), run)
        thread = threading.Thread(target=engine.run, name="engine", daemon=True)
        thread.start()
        try:
            _wait(order, run, new_tables)
        finally:
            run.stopping = True
            _close(engine)
            thread.join(timeout=STOP_WITHIN_S)
    if run.failure is not None:
        raise failure_of(run.failure, settings) from run.failure


def _wait(order: Order, run: Run, new_tables: NewTables) -> None:
    """Wait for the end; a marker that was written before the engine's slot or snapshot never arrives.

    After a restart the engine looks for a commit, such as that of a marker, before it heeds a signal.
    """
    pause_s = LOOK_EVERY_S
    while not run.ended.wait(pause_s):
        if run.is_polling.is_set() and (run.report_to is not None or new_tables.names):
            new_tables.signal()
            emit_marker(order.settings, run.marker)
            pause_s = NEXT_MARKER_AFTER_S


def _keep_comments(spool: Spool, settings: EngineInput) -> None:
    """Store the comments of the source, unless it rejects the query; the engine works without them."""
    try:
        write_whole(spool.comments, read_comments(settings))
    except CaptureStopped as error:
        LOGGER.warning("The comments of tables and columns stay as they were. %s", error)


def _build(connector_properties: Mapping[str, str], batches: BatchWriter, run: Run) -> Any:
    import jpype

    json_format = jpype.JClass("io.debezium.engine.format.Json").class_
    properties = jpype.JClass("java.util.Properties")()
    for name, value in connector_properties.items():
        properties.setProperty(name, value)
    # Headers hold the old key of a row whose key has changed: without a format for headers they are lost.
    return (
        jpype.JClass("io.debezium.engine.DebeziumEngine")
        .create(json_format, json_format, json_format)
        .using(properties)
        .using(jpype.JClass("io.debezium.engine.spi.OffsetCommitPolicy").always())
        .using(_connector_callback(run))
        .using(_completion_callback(run))
        .notifying(_change_consumer(batches, run))
        .build()
    )


def _change_consumer(batches: BatchWriter, run: Run) -> Any:
    import jpype

    def handle(records: Sequence[Any], committer: Any) -> None:
        if run.stopping:
            return
        try:
            batches.write(records, committer)
        except BaseException as error:
            run.fail(error)
            raise

    return jpype.JProxy(
        "io.debezium.engine.DebeziumEngine$ChangeConsumer",
        dict={"handleBatch": handle, "supportsTombstoneEvents": lambda: True},
    )


def _connector_callback(run: Run) -> Any:
    import jpype

    names = ("connectorStarted", "connectorStopped", "taskStarted", "taskStopped", "pollingStopped")
    handlers = dict.fromkeys(names, lambda: None) | {"pollingStarted": run.is_polling.set}
    return jpype.JProxy("io.debezium.engine.DebeziumEngine$ConnectorCallback", dict=handlers)


def _completion_callback(run: Run) -> Any:
    import jpype

    def handle(success: bool, message: Any, error: Any) -> None:
        if success:
            run.ended.set()
        else:
            run.fail(error if error is not None else RuntimeError(str(message)))

    return jpype.JProxy("io.debezium.engine.DebeziumEngine$CompletionCallback", dict={"handle": handle})


def _close(engine: Any) -> None:
    """Close the engine, even during its start."""
    import jpype

    try:
        engine.close()
    except jpype.JException as error:
        # The engine has closed itself after a failure, such as of a disk without room for this line.
        with suppress(OSError):
            sys.stderr.write(f"closing: {error}\n")


def main() -> int:
    """Run the engine by the order on the standard input; return the program's exit code.

    A failure is reported in the spool's `failure.json` and on the standard error.
    """
    order = Order.from_json(sys.stdin.readline())
    run = Run()
    threading.Thread(target=_end_on_request, args=(run, _signals()), daemon=True).start()
    try:
        capture(order, run)
    except CdcError as error:
        # On a full disk only the exit code may get through.
        with suppress(OSError):
            _report(error, order.settings.folder())
        return errno.ENOSPC if isinstance(error, DiskFull) else 1
    return 0


def exit_code() -> int:
    """Return the exit code of `main`, also after an error that it does not expect.

    At such an error Python would end Java first, and wait without end for its threads that hang.
    """
    try:
        return main()
    except Exception as error:  # noqa: BLE001  the program ends with it
        with suppress(OSError):
            traceback.print_exc()
        return errno.ENOSPC if isinstance(error, OSError) and error.errno == errno.ENOSPC else 1


def _signals() -> int:
    """Return the end of a pipe from which signals to this process can be read.

    Linux may give them to any of Java's threads. The main thread would handle them once it waits no longer.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return read_end


def _end_on_request(run: Run, signals: int) -> None:
    """End the run at a signal, or when the process that started this one has ended."""
    parent = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([parent, signals], [], [])
        if signals in ready or not os.read(parent, 1024):
            run.ended.set()
            return


def _report(error: CdcError, folder: Path) -> None:
    sys.stderr.write(f"{type(error).__name__}: {error}\n")
    if folder.is_dir():
        failure = {"error": type(error).__name__, "message": str(error)}
        if isinstance(error, SettingError):
            failure |= {"setting": error.setting, "problem": error.problem}
        write_whole(folder / "failure.json", json.dumps(failure))


if __name__ == "__main__":
    code = exit_code()
    with suppress(OSError):
        sys.stderr.flush()
    if code == 0:
        archive_classes()
    # Hanging threads of the JVM must not keep the process alive.
    os._exit(code)
