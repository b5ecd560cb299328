"""A call that is silent for too long is ended, independent of the caller."""

import time
from collections.abc import Iterator
from threading import Event

import pytest

from cdc_platform.errors import PartitionStuck
from cdc_platform.sources.spanner.client.silence import with_silence_limit

LIMIT_S = 0.5
"""Longer than a busy machine makes a thread wait for its turn."""


class Call:
    """Messages after pauses; when it is cancelled it ends, in either way that a call may."""

    def __init__(self, *pauses_s: float, breaks: bool = True) -> None:
        self.pauses_s, self.breaks, self.cancelled = pauses_s, breaks, Event()

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers of the messages."""
        for number, pause_s in enumerate(self.pauses_s):
            if self.cancelled.wait(pause_s):
                if self.breaks:
                    raise ConnectionError("Locally cancelled")
                return
            yield number

    def cancel(self) -> None:
        """End the call."""
        self.cancelled.set()


def stuck() -> PartitionStuck:
    """Return the error of a silent call."""
    return PartitionStuck("silent")


@pytest.mark.parametrize("breaks", [True, False])
def test_a_silent_call_is_cancelled(breaks: bool) -> None:
    """Rows that came are returned; then the call is cancelled and the error says why."""
    call = Call(0, 0, 60, breaks=breaks)
    messages = with_silence_limit(call, LIMIT_S, stuck)
    assert [next(messages), next(messages)] == [0, 1]
    with pytest.raises(PartitionStuck, match="silent"):
        next(messages)
    assert call.cancelled.is_set()


def test_a_call_that_answers_now_and_then_continues() -> None:
    """Only a pause between two messages counts, not how long the call takes as a whole."""
    assert list(range(6)) == list(with_silence_limit(Call(*[LIMIT_S / 5] * 6), LIMIT_S, stuck))


def test_a_slow_caller_is_no_silence() -> None:
    """A caller may take any time for a message."""
    items = []
    for number in with_silence_limit(Call(0, 0), LIMIT_S, stuck):
        time.sleep(LIMIT_S * 1.5)
        items.append(number)
    assert items == [0, 1]


def test_an_error_of_the_call_stays_what_it_is() -> None:
    """A broken call is not treated as a silent one."""
    call = Call(0, 0.001)
    call.cancel()
    with pytest.raises(ConnectionError):
        list(with_silence_limit(call, LIMIT_S, stuck))
