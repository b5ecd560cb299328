"""The simulator as a server on loopback."""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self

import grpc  # type: ignore[import-untyped] # ships no types

from cdc_platform.errors import SetupError
from cdc_platform.model.base.timestamps import clock_micros, to_rfc3339
from cdc_platform.simulator.history.history import History
from cdc_platform.simulator.history.history_file import HistoryFile
from cdc_platform.simulator.history.hours import OpeningHours
from cdc_platform.simulator.service import SpannerService
from cdc_platform.simulator.sql.database import Database
from cdc_platform.simulator.wire.problems import Refusal
from cdc_platform.simulator.wire.simulator_settings import Fault, SimulatorSettings

LOOPBACK: Final = "127.0.0.1"
SERVICE: Final = "google.spanner.v1.Spanner"

_LOG: Final = logging.getLogger(__name__)
_THREADS: Final = 1024
"""Every open change stream query waits in its own thread."""
_CYCLE_S: Final = 0.25
_OPTIONS: Final = (
    # Otherwise two servers may silently share a port and split its traffic.
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)
_UNARY: Final = {
    "CreateSession": "CreateSessionRequest",
    "BatchCreateSessions": "BatchCreateSessionsRequest",
    "GetSession": "GetSessionRequest",
    "DeleteSession": "DeleteSessionRequest",
    "BeginTransaction": "BeginTransactionRequest",
    "Rollback": "RollbackRequest",
    "Commit": "CommitRequest",
    "ExecuteSql": "ExecuteSqlRequest",
    "PartitionQuery": "PartitionQueryRequest",
    "PartitionRead": "PartitionReadRequest",
}
_STREAMING: Final = {"ExecuteStreamingSql": "ExecuteSqlRequest", "StreamingRead": "ReadRequest"}


class Simulator:
    """A change stream server: `with Simulator(SimulatorSettings(seed=7)) as server: ...`.

    `host` is its address, for `emulator_host` and SPANNER_EMULATOR_HOST. The history continues while it runs;
    with a `state` file it continues the history of the last run. The true history is written to
    `history_file`, one transaction per line.
    """

    def __init__(
        self,
        settings: SimulatorSettings | None = None,
        *,
        port: int = 0,
        state: Path | None = None,
        history_file: Path | None = None,
        clock: Callable[[], int] = clock_micros,
    ) -> None:
        self.settings = settings or SimulatorSettings()
        self._port, self._state, self._clock = port, state, clock
        self._is_over = threading.Event()
        self._server: Any = None
        self.host = ""
        self._seen_micros = 0
        self.database = Database(History(self.settings, self._hours()), clock)
        self._file = HistoryFile(self.history, history_file) if history_file is not None else None
        self._work = threading.Thread(target=self._continue, name="simulator", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def history(self) -> History:
        """The history so far."""
        return self.database.history

    @property
    def origin_micros(self) -> int:
        """When the history and the change stream began."""
        return self.history.origin_micros

    @property
    def transactions(self) -> int:
        """The number of committed transactions, which are in the history file if there is one."""
        return self.history.transactions_until(self._seen_micros)

    def start(self) -> None:
        """Generate the history up to now, and answer from now on.

        Raises:
            SetupError: the port is in use.
        """
        self._seen_micros = self.database.now_micros()
        self._server = grpc.server(ThreadPoolExecutor(_THREADS), options=_OPTIONS)
        service = SpannerService(self.database)
        handlers = {name: _unary(service, name, request) for name, request in _UNARY.items()}
        handlers |= {name: _streaming(service, name, request) for name, request in _STREAMING.items()}
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self._server.add_generic_rpc_handlers((generic,))
        try:
            bound = self._server.add_insecure_port(f"{LOOPBACK}:{self._port}")
        except RuntimeError as error:
            message = f"Port {self._port} is in use; choose another one, or 0 for any free port"
            raise SetupError(message) from error
        self.host = f"{LOOPBACK}:{bound}"
        self._server.start()
        self._work.start()

    def stop(self) -> None:
        """End running calls, and stop answering; a second call does nothing."""
        self._is_over.set()
        server, self._server = self._server, None
        if server is not None:
            server.stop(None).wait()
            self._work.join()
            if self._file is not None:
                self._file.close()

    def names(self) -> dict[str, str]:
        """Return the names to connect with, by the settings of a pipeline."""
        settings = self.settings
        return {
            "emulator_host": self.host,
            "project": settings.project,
            "instance": settings.instance,
            "database": settings.database,
            "change_stream": settings.change_stream,
            "dialect": settings.dialect.value,
            "start_timestamp": to_rfc3339(self.origin_micros),
        }

    def inject(self, fault: Fault, *, times: int = 1, token: str | None = None, after_rows: int = 0) -> None:
        """Inject a fault into the next change stream queries, after some of their rows.

        With a `token` it applies only to queries of that partition.
        """
        self.database.faults.demand(fault, times, token, after_rows)

    def _hours(self) -> OpeningHours:
        if self._state is not None:
            return OpeningHours.kept_in(self._state, self.settings, self._clock())
        origin_micros = self.settings.origin_micros
        if origin_micros is None:
            origin_micros = self._clock() - int(self.settings.history_s * 1_000_000)
        return OpeningHours.always(self.settings, origin_micros)

    def _continue(self) -> None:
        # The history continues without requests, so that later ones find it.
        is_over = False
        while not is_over:
            is_over = self._is_over.wait(_CYCLE_S)
            now_micros = self.database.now_micros()
            if self._file is not None:
                self._file.write_until(now_micros)
            self._seen_micros = now_micros


def _unary(service: SpannerService, name: str, request_name: str) -> Any:
    method = getattr(service, _snake(name))

    def answer(request: Any, context: Any) -> bytes:
        try:
            response = method(request)
        except Refusal as refusal:
            return _abort(context, refusal)
        except Exception as error:  # noqa: BLE001 - the caller gets every error
            return _abort(context, _failure(name, error))
        return response if isinstance(response, bytes) else bytes(response.SerializeToString())

    return grpc.unary_unary_rpc_method_handler(answer, _parser(request_name))


def _streaming(service: SpannerService, name: str, request_name: str) -> Any:
    method = getattr(service, _snake(name))

    def answer(request: Any, context: Any) -> Iterator[bytes]:
        is_over = threading.Event()
        context.add_callback(is_over.set)
        try:
            yield from method(request, is_over)
        except Refusal as refusal:
            _abort(context, refusal)
        except Exception as error:  # noqa: BLE001 - the caller gets every error
            _abort(context, _failure(name, error))

    return grpc.unary_stream_rpc_method_handler(answer, _parser(request_name))


def _failure(name: str, error: Exception) -> Refusal:
    """Return the error for a caller after an internal error of the simulator, and log the error."""
    _LOG.error("%s failed", name, exc_info=error)
    return Refusal("INTERNAL", f"The simulator failed in {name}: {type(error).__name__}: {error}")


def _abort(context: Any, refusal: Refusal) -> bytes:
    context.abort(grpc.StatusCode[refusal.code], refusal.text)
    return b""


def _parser(request_name: str) -> Callable[[bytes], Any]:
    from google.cloud.spanner_v1 import types

    wrapper = getattr(types, request_name)
    parse: Callable[[bytes], Any] = wrapper.pb(wrapper()).FromString
    return parse


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
