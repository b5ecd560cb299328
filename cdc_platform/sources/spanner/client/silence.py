"""Ends a call that has gone silent: nothing came for longer than an idle partition says nothing."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from cdc_platform.errors import PartitionStuck


def unless_silent(messages: Any, limit_s: float, error: Callable[[], PartitionStuck]) -> Iterator[Any]:
    """Yield the messages of a call, and cancel it when none comes for so long.

    Only the source's silence counts, not the time that the caller takes for a message.

    Raises:
        PartitionStuck: It was cancelled.
    """
    watch = _Watch(messages.cancel, limit_s)
    try:
        for message in messages:
            watch.rest()
            yield message
            watch.wait()
    except Exception as broken:
        if watch.has_fired:
            raise error() from broken
        raise
    finally:
        watch.stop()
    if watch.has_fired:
        # The call may have ended by itself in the same moment; it is not known whether anything is missing.
        raise error()


class _Watch:
    """Calls back once when it has waited for too long."""

    def __init__(self, on_silence: Callable[[], object], limit_s: float) -> None:
        self._on_silence, self._limit_s = on_silence, limit_s
        self._since: float | None = time.monotonic()
        self._is_over = threading.Event()
        self.has_fired = False
        threading.Thread(target=self._run, name="silence", daemon=True).start()

    def wait(self) -> None:
        """Begin to wait for the next message."""
        self._since = time.monotonic()

    def rest(self) -> None:
        """Stop waiting: a message has come."""
        self._since = None

    def stop(self) -> None:
        """End for good."""
        self._is_over.set()

    def _run(self) -> None:
        pause_s = self._limit_s
        while not self._is_over.wait(pause_s):
            since = self._since
            waited_s = 0.0 if since is None else time.monotonic() - since
            if waited_s >= self._limit_s:
                self.has_fired = True
                self._on_silence()
                return
            pause_s = self._limit_s - waited_s
