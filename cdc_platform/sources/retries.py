"""Bounded attempts with exponential back-off and jitter."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cdc_platform.errors import PartitionStuck, SourceError

MAX_RESTARTS: Final = 1
"""Number of times that a read queries a silent partition again; the next cycle starts over."""


@dataclass
class Retries:
    """Counts successive failures; progress resets the count, and too many failures end the read.

    A silent partition is queried again once per read, whether it progresses or not.
    """

    max_attempts: int
    backoff_initial_s: float
    backoff_max_s: float
    sleep: Callable[[float], None] = time.sleep
    failures: int = field(default=0, init=False)
    silences: int = field(default=0, init=False)

    def progressed(self) -> None:
        """Reset the counts: the source answered."""
        self.failures = 0

    def failed(self, error: SourceError) -> None:
        """Wait before the next attempt.

        Raises:
            SourceError: the error itself, if a retry cannot help or the attempts are used up.
        """
        self.failures += 1
        self.silences += isinstance(error, PartitionStuck)
        if not error.retryable or self.failures >= self.max_attempts or self.silences > MAX_RESTARTS:
            raise error
        self.sleep(self._pause_s())

    def _pause_s(self) -> float:
        longest_s = min(self.backoff_max_s, self.backoff_initial_s * 2.0 ** (self.failures - 1))
        # Jitter keeps many windows from retrying at the same time.
        return longest_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
