"""Read times of requests: transaction selectors, and answers about transactions."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from cdc_platform.simulator.wire.problems import Refusal, read_only
from cdc_platform.simulator.wire.wire import varint

_TRANSACTION: Final = b"\x12"
_SECOND: Final = 1_000_000
_LONGEST_WAIT_S: Final = 1.0


@dataclass(frozen=True)
class ReadTime:
    """The read time of a request; `transaction` is its description in the answer, if any."""

    micros: int
    is_strong_single_use: bool
    transaction: bytes = b""


class Moments:
    """Chooses read times; a read-only transaction is identified by its time, so nothing is stored for it."""

    def __init__(self, now_micros: Callable[[], int]) -> None:
        self._now_micros = now_micros
        self._numbers = count(1)

    def reading(self, selector: Any) -> ReadTime:
        """Return the read time for a transaction selector.

        Raises:
            Refusal: it is for writing, or names an unknown transaction.
        """
        kind = selector.WhichOneof("selector")
        if kind == "id":
            return ReadTime(_begun_micros(selector.id), is_strong_single_use=False)
        if kind == "begin":
            micros, transaction_id = self._begin(selector.begin)
            return ReadTime(micros, is_strong_single_use=False, transaction=transaction_id)
        # A request without a selector reads strongly; a selector for writing does not.
        is_read_only = kind is None or selector.single_use.WhichOneof("mode") == "read_only"
        read_only = selector.single_use.read_only
        micros = self._moment(read_only)
        bound = read_only.WhichOneof("timestamp_bound")
        message = transaction(b"", micros) if read_only.return_read_timestamp else b""
        is_strong = is_read_only and bound in (None, "strong")
        return ReadTime(micros, is_strong_single_use=is_strong, transaction=message)

    def begin(self, options: Any) -> bytes:
        """Return a new read-only transaction as a message in bytes.

        Raises:
            Refusal: it is for writing.
        """
        return self._begin(options)[1]

    def _begin(self, options: Any) -> tuple[int, bytes]:
        if not options.HasField("read_only"):
            raise read_only()
        micros = self._moment(options.read_only)
        reply_micros = micros if options.read_only.return_read_timestamp else None
        return micros, transaction(f"{micros}/{next(self._numbers)}".encode(), reply_micros)

    def _moment(self, read_only: Any) -> int:
        now_micros = self._now_micros()
        bound = read_only.WhichOneof("timestamp_bound")
        if bound == "read_timestamp":
            return self._wait_until(_micros(read_only.read_timestamp))
        if bound == "exact_staleness":
            return now_micros - int(read_only.exact_staleness.ToMicroseconds())
        return now_micros

    def _wait_until(self, micros: int) -> int:
        """Wait for a read timestamp in the future, as Spanner does."""
        pause = threading.Event()
        while (now_micros := self._now_micros()) < micros:
            pause.wait(min(_LONGEST_WAIT_S, (micros - now_micros) / _SECOND))
        return micros


def transaction(identifier: bytes, read_micros: int | None) -> bytes:
    """Return a `Transaction` in bytes."""
    parts = [b"\x0a", varint(len(identifier)), identifier] if identifier else []
    if read_micros is not None:
        seconds, micros = divmod(read_micros, _SECOND)
        timestamp = b"\x08" + varint(seconds) + b"\x10" + varint(micros * 1000)
        parts += (b"\x12", varint(len(timestamp)), timestamp)
    return b"".join(parts)


def frame_transaction(message: bytes) -> bytes:
    """Return a transaction as a field of a result's metadata; empty without one."""
    return _TRANSACTION + varint(len(message)) + message if message else b""


def _begun_micros(identifier: bytes) -> int:
    moment, _, number = identifier.decode(errors="replace").partition("/")
    if not moment.isdecimal() or not number.isdecimal():
        raise Refusal("NOT_FOUND", "Transaction not found.")
    return int(moment)


def _micros(timestamp: Any) -> int:
    return int(timestamp.seconds) * _SECOND + int(timestamp.nanos) // 1000
