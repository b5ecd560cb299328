"""Cycles over a simulated database within one process: reader, lineage and log, without gRPC and Spark."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Any, Final

from cdc_platform.errors import TransactionIncomplete
from cdc_platform.model.base.timestamps import from_datetime
from cdc_platform.model.stream.generations import Generations, finished_parents
from cdc_platform.model.stream.lineage import Lineage, advance, begin, watermark_micros
from cdc_platform.model.stream.read_windows import ReadRequest, ReadWindow, WindowReport, first_end_micros
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.simulator.history.history_file import transaction_line
from cdc_platform.simulator.history.transactions import Transaction
from cdc_platform.simulator.service import SpannerService
from cdc_platform.simulator.wire.problems import Refusal
from cdc_platform.simulator.wire.simulator_settings import Dialect, SimulatorSettings
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.failures import to_source_error
from cdc_platform.sources.spanner.client.wire import rows_parser
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform.sources.spanner.spanner_settings import Dialect as SpokenDialect
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.sources.spanner.stream.window_pool import read_together
from cdc_platform.sources.spanner.stream.window_reader import read_window
from cdc_platform_tests.fake_stream import read_control
from cdc_platform_tests.simulator.histories import ORIGIN, Simulated
from cdc_platform_tests.support.history import RawRow

SILENCE_S: Final = 0.5
"""Longer than a busy machine makes a thread wait for its turn."""
MAX_CYCLES: Final = 300
"""A reader that needs more than this to catch up with a few seconds makes no progress."""

LoggedChange = tuple[str, str, str, str | None]
"""Table, keys, mod type, and the new values as JSON where the row is there afterwards."""
Logged = tuple[int, str, tuple[LoggedChange, ...]]
"""Commit timestamp, id and changes of a transaction; the changes of a key are in their order."""


@dataclass
class Call:
    """A streaming call: its messages, which end when it is cancelled."""

    messages: Iterator[bytes]
    parse: Callable[[bytes], Any]
    is_over: Event
    settings: SpannerSettings

    def __iter__(self) -> Iterator[Any]:
        """Yield messages as our client's channel does."""
        try:
            for message in self.messages:
                if self.is_over.is_set():
                    raise to_source_error(self.settings, "CANCELLED", "Locally cancelled by application!")
                yield self.parse(message)
        except Refusal as refusal:
            raise to_source_error(self.settings, refusal.code, refusal.text) from refusal

    def cancel(self) -> None:
        """End the call."""
        self.is_over.set()


class InProcessClient(SpannerClient):
    """Our client, with the service of a simulated database in the place of a channel."""

    def __init__(self, database: Simulated, **settings: Any) -> None:
        names = database.settings
        chosen = {"backoff_initial_s": 1e-6, "stuck_after_s": SILENCE_S, "heartbeat_ms": 100} | settings
        super().__init__(
            SpannerSettings(
                names.project,
                names.instance,
                names.database,
                names.change_stream,
                dialect=SpokenDialect(names.dialect.value),
                **chosen,
            )
        )
        self.service = SpannerService(database.database)
        self.requests: Counter[str | None] = Counter()

    def _connect(self) -> str:
        from google.cloud.spanner_v1.types import CreateSessionRequest

        if self._session is None:
            request = CreateSessionRequest(database=self.settings.database_path)
            self._session = str(self.service.create_session(CreateSessionRequest.pb(request)).name)
        return self._session

    def _execute(self, make_request: Callable[[str], Any], deadline_s: float) -> Any:  # noqa: ARG002 - theirs
        from google.cloud.spanner_v1.types import ExecuteSqlRequest

        request, is_over = ExecuteSqlRequest.pb(make_request(self._connect())), Event()
        self.requests[_token(request)] += 1
        try:
            messages = self.service.execute_streaming_sql(request, is_over)
        except Refusal as refusal:
            raise to_source_error(self.settings, refusal.code, refusal.text) from refusal
        return Call(messages, rows_parser(), is_over, self.settings)


def _token(request: Any) -> str | None:
    name = "partition_token" if "partition_token" in request.params.fields else "p3"
    return str(request.params.fields[name].string_value) or None


@dataclass
class Reading:
    """A pipeline's reader over a simulated database whose clock the test sets, and the log it can write."""

    database: Simulated
    client: InProcessClient
    lineage: Lineage = field(default_factory=lambda: begin(ORIGIN))
    log: list[Logged] = field(default_factory=list)
    waiting: dict[tuple[Any, ...], RawRow] = field(default_factory=dict)
    logged_micros: int = ORIGIN - 1
    truths: dict[str, Logged] = field(default_factory=dict)
    """What `truth` has returned, by transaction."""

    @property
    def watermark_micros(self) -> int:
        """The watermark; a simulated stream never ends."""
        actual = watermark_micros(self.lineage)
        assert actual is not None
        return actual

    def cycle(self, skipped: str | None = None, keys: Collection[str] | None = None) -> list[WindowReport]:
        """Read the live partitions, or some, but one, up to the database's clock, and write the log."""
        number, rows = self.lineage.cycle + 1, list[RawRow]()
        for window in self.plan(keys):
            rows += self.read(number, window) if window.token != skipped else []
        return self.take(rows)

    def take(self, rows: list[RawRow]) -> list[WindowReport]:
        """Let the rows be those of the next cycle, and write the log."""
        reports, children = read_control(rows)
        self.lineage = advance(self.lineage, self.lineage.cycle + 1, reports, children)
        self.write_log(rows)
        return reports

    def follow(self) -> list[WindowReport]:
        """Read the live partitions, and the children of those that end, up to the database's clock."""
        number, windows = self.lineage.cycle + 1, self.plan()
        if not windows:
            return []
        generations = Generations(first_end_micros(windows), finished_parents(self.lineage))
        batches = read_together(partial(read_window, self.client, number), windows, generations)
        return self.take([row for batch in batches for row in batch.to_pylist()])

    def plan(self, keys: Collection[str] | None = None) -> tuple[ReadWindow, ...]:
        """Return the windows of the next cycle, of all live partitions or of chosen ones."""
        source = SpannerSource(self.client.settings)
        source.__dict__["client"] = self.client
        return source.plan(self.lineage, ReadRequest(self.database.now_micros, keys=keys), None).windows

    def read(self, number: int, window: ReadWindow) -> list[RawRow]:
        """Return the rows of `raw_change_records` that a window gives."""
        return [row for batch in read_window(self.client, number, window) for row in batch.to_pylist()]

    def catch_up(self) -> None:
        """Read until the watermark is just before the database's clock."""
        for _ in range(MAX_CYCLES):
            if self.watermark_micros >= self.database.now_micros - 1:
                return
            self.cycle()
        raise AssertionError(f"still at {self.watermark_micros} after {MAX_CYCLES} cycles: {self.lineage}")

    def write_log(self, rows: list[RawRow]) -> None:
        """Put the transactions at or before the watermark into the log, whole and in order.

        Raises:
            TransactionIncomplete: One of them is not whole.
        """
        for row in rows:
            if row["kind"] == RecordKind.DATA_CHANGE:
                self.waiting.setdefault(_order(row), row)
        watermark = self.watermark_micros
        due = sorted(order for order in self.waiting if order[0] <= watermark)
        whole: dict[tuple[int, str], list[RawRow]] = {}
        for order in due:
            whole.setdefault(order[:2], []).append(self.waiting.pop(order))
        for (micros, identifier), records in whole.items():
            expected = records[0]["number_of_records_in_transaction"]
            assert micros > self.logged_micros
            if len(records) != expected:
                raise TransactionIncomplete(identifier, expected, len(records))
            self.log.append((micros, identifier, _changes(records)))
        self.logged_micros = watermark

    def truth(self) -> list[Logged]:
        """Return the log that is right at the watermark."""
        history, watermark = self.database.history, self.watermark_micros
        committed = [
            transaction for transaction in history.serial() if transaction.commit_micros <= watermark
        ]
        for transaction in committed:
            if transaction.id not in self.truths:
                self.truths[transaction.id] = _logged(transaction, history)
        return sorted(self.truths[transaction.id] for transaction in committed)


def reading(database: Simulated, **settings: Any) -> Reading:
    """Return a reader at the beginning of a simulated database's stream."""
    return Reading(database, InProcessClient(database, **settings))


def churning(dialect: Dialect = Dialect.GOOGLESQL, **settings: Any) -> Simulated:
    """Return a database with three seconds of history, whose partitions live about as long."""
    chosen: dict[str, Any] = {"seed": 7, "partitions": 4, "partition_life_s": 1.0, "rate": 60, "accounts": 30}
    return Simulated(SimulatorSettings(dialect=dialect, **chosen | settings), ORIGIN + 3_000_000)


def _order(row: RawRow) -> tuple[int, str, str]:
    return from_datetime(row["record_timestamp"]), row["server_transaction_id"], row["record_order"]


def _changes(records: list[RawRow]) -> tuple[LoggedChange, ...]:
    changes = [
        (
            record["table_name"],
            _sorted_json(json.loads(mod["keys"])),
            record["mod_type"],
            None if record["mod_type"] == "DELETE" else _sorted_json(json.loads(mod["new_values"])),
        )
        for record in records
        for mod in record["mods"]
    ]
    return tuple(sorted(changes, key=lambda change: change[:2]))


def _logged(transaction: Transaction, history: Any) -> Logged:
    line = json.loads(transaction_line(transaction, history))
    changes = [
        (
            change["table"],
            _sorted_json(change["keys"]),
            change["mod_type"],
            None if change["new"] is None else _sorted_json(change["new"]),
        )
        for change in line["changes"]
    ]
    return transaction.commit_micros, transaction.id, tuple(sorted(changes, key=lambda change: change[:2]))


def _sorted_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
