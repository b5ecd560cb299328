"""ReadWindows: the bounded reads that a cycle consists of."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from cdc_platform.errors import PartitionStuck


@dataclass(frozen=True)
class ReadWindow:
    """One bounded read of one partition, `(start_exclusive, end_inclusive]`."""

    token: str
    start_exclusive_micros: int
    end_inclusive_micros: int

    @property
    def duration_s(self) -> float:
        """The span of the source's time that it covers."""
        return (self.end_inclusive_micros - self.start_exclusive_micros) / 1e6

    def shortened(self, most_s: float) -> "ReadWindow":
        """Return the window without what lies more than some seconds after its start."""
        latest_micros = self.start_exclusive_micros + round(most_s * 1_000_000)
        return replace(self, end_inclusive_micros=min(self.end_inclusive_micros, latest_micros))


def first_end_micros(windows: Sequence[ReadWindow]) -> int:
    """Return the end that all windows reach, and at which children that are read with them end."""
    return min(window.end_inclusive_micros for window in windows)


@dataclass(frozen=True)
class ReadRequest:
    """Limits of what a cycle may read.

    Args:
        clock_micros: the source's own clock.
        max_window_s: how much time a cycle may cover.
        keys: partition keys to read; all live partitions when None.
        end_limit_micros: nothing after it is read.
        has_replay: whether records of quarantine are to be judged again, so that there must be a cycle.
        ends_pauses: whether files that could not be read are tried now, and not when their pauses end.
    """

    clock_micros: int
    max_window_s: float | None = None
    keys: Collection[str] | None = None
    end_limit_micros: int | None = None
    has_replay: bool = False
    ends_pauses: bool = False


@dataclass(frozen=True)
class ReadPlan:
    """The windows that a cycle reads; ``inputs`` is what the source itself has to know of them, as text.

    ``finished_parents`` lets the read continue with the children of partitions that end in it; see
    `model/stream/generations.py`. With None, children are left to the next read.
    """

    windows: tuple[ReadWindow, ...]
    inputs: str = ""
    finished_parents: tuple[str, ...] | None = None

    @property
    def end_micros(self) -> int:
        """End of the last window."""
        return max(planned.end_inclusive_micros for planned in self.windows)


class WindowOutcome(StrEnum):
    """Outcome of reading a window."""

    COMPLETE = "complete"
    """It was read to its end."""
    FINISHED = "finished"
    """The partition ended inside it, and its children are announced."""
    ENDED = "ended"
    """The partition ended inside it, at the reported end, and has no children."""
    INTERRUPTED = "interrupted"
    """The read failed; the reported end is what is complete."""


@dataclass(frozen=True)
class WindowReport:
    """Result of a window: everything up to `end_inclusive_micros` has been read."""

    token: str
    start_exclusive_micros: int
    end_inclusive_micros: int
    outcome: WindowOutcome
    error: str | None = None

    @property
    def is_silent(self) -> bool:
        """Whether the partition was silent, also when it was asked again."""
        return self.outcome is WindowOutcome.INTERRUPTED and self.error_name == PartitionStuck.__name__

    @property
    def duration_s(self) -> float:
        """Seconds of the source's time that were read."""
        return (self.end_inclusive_micros - self.start_exclusive_micros) / 1e6

    @property
    def has_moved(self) -> bool:
        """Whether the read made any progress."""
        return self.end_inclusive_micros > self.start_exclusive_micros

    @property
    def error_name(self) -> str:
        """Name of the error's class, which its text begins with; empty when there is no error."""
        return (self.error or "").partition(": ")[0]

    @property
    def error_message(self) -> str:
        """The text of the error, without the name of its class."""
        return (self.error or "").partition(": ")[2]
