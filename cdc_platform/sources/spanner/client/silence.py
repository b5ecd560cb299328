"""Cancellation of silent calls, which send nothing for longer than an idle partition."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from cdc_platform.errors import PartitionStuck


def with_silence_limit(messages: Any, limit_s: float, error: Callable[[], PartitionStuck]) -> Iterator[Any]:
    """Yield the messages of a call, and cancel it if none arrives within the limit.

    Only the source's silence counts, not the time that the caller takes for a message.

    Raises:
        PartitionStuck: the call was cancelled.
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
        # The call may have ended by itself at the same time, so records may or may not be missing.
        raise error()


class _Watch:
    """Timer that calls back once if a wait takes too long."""

    def __init__(self, on_silence: Callable[[], object], limit_s: float) -> None:
        self._on_silence, self._limit_s = on_silence, limit_s
        self._since: float | None = time.monotonic()
        self._is_over = threading.Event()
        self.has_fired = False
        threading.Thread(target=self._run, name="silence", daemon=True).start()

    def wait(self) -> None:
        """Start waiting for the next message."""
        self._since = time.monotonic()

    def rest(self) -> None:
        """Stop waiting, because a message has arrived."""
        self._since = None

    def stop(self) -> None:
        """Stop the timer for good."""
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
