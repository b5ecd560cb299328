"""Read windows, the bounded reads of a cycle, with their plan and their reports."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from cdc_platform.errors import PartitionStuck
from cdc_platform.model.base.timestamps import MICROS_PER_S, to_datetime
from cdc_platform.model.stream.records import RecordKind


@dataclass(frozen=True)
class ReadWindow:
    """One bounded read of one partition, `(start_exclusive, end_inclusive]`."""

    token: str
    start_exclusive_micros: int
    end_inclusive_micros: int

    @property
    def duration_s(self) -> float:
        """Seconds of source time that the window covers."""
        return (self.end_inclusive_micros - self.start_exclusive_micros) / 1e6

    def shorten(self, max_s: float) -> "ReadWindow":
        """Return the window cut off at most `max_s` seconds after its start."""
        latest_micros = self.start_exclusive_micros + round(max_s * MICROS_PER_S)
        return replace(self, end_inclusive_micros=min(self.end_inclusive_micros, latest_micros))


def first_end_micros(windows: Sequence[ReadWindow]) -> int:
    """Return the earliest end of the windows; children that are read with them end there too."""
    return min(window.end_inclusive_micros for window in windows)


@dataclass(frozen=True)
class ReadRequest:
    """Limits of what a cycle may read.

    Args:
        clock_micros: the source's own clock.
        max_window_s: maximum seconds of source time that the cycle may cover.
        keys: partition keys to read; all live partitions when None.
        end_limit_micros: latest time to read.
        has_replay: whether a replay of quarantined records waits; then there must be a cycle.
        ends_pauses: whether to retry files that could not be read now, before their pauses end.
    """

    clock_micros: int
    max_window_s: float | None = None
    keys: Collection[str] | None = None
    end_limit_micros: int | None = None
    has_replay: bool = False
    ends_pauses: bool = False


@dataclass(frozen=True)
class ReadPlan:
    """The windows that a cycle reads; ``inputs`` is the source's own description of what to read.

    ``files`` is the number of files to read, again or for the first time; None for other sources.
    ``left_since_micros`` is the age of the oldest data that the plan leaves to later cycles, by the
    timestamps of an event source; None if it reads everything that is there.
    With ``finished_parents``, the read continues with the children of partitions that end in it; see
    `model/stream/generations.py`. With None, the next read takes the children.
    """

    windows: tuple[ReadWindow, ...]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    finished_parents: tuple[str, ...] | None = None
    files: int | None = None
    left_since_micros: int | None = None

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
    """The read failed; it is complete up to the reported end."""


@dataclass(frozen=True)
class WindowReport(ReadWindow):
    """Result of a window: everything up to `end_inclusive_micros` has been read."""

    outcome: WindowOutcome
    error: str | None = None

    @property
    def is_silent(self) -> bool:
        """Whether the partition sent nothing, even when it was queried again."""
        return self.outcome is WindowOutcome.INTERRUPTED and self.error_name == PartitionStuck.__name__

    @property
    def has_moved(self) -> bool:
        """Whether the read made any progress."""
        return self.end_inclusive_micros > self.start_exclusive_micros

    @property
    def error_name(self) -> str:
        """Name of the error's class, from the start of its text; empty if there is no error."""
        return (self.error or "").partition(": ")[0]

    @property
    def error_message(self) -> str:
        """Text of the error without the name of its class."""
        return (self.error or "").partition(": ")[2]

    def to_row(self, cycle: int, data: int, heartbeats: int, children: int) -> dict[str, Any]:
        """Return the row of the raw table that reports on the window, with the numbers of its records."""
        end = to_datetime(self.end_inclusive_micros)
        return {
            "cycle": cycle,
            "kind": RecordKind.READ_WINDOW.value,
            "partition_token": self.token,
            "record_timestamp": end,
            "read_window": {
                "start_exclusive": to_datetime(self.start_exclusive_micros),
                "end_inclusive": end,
                "outcome": self.outcome.value,
                "data_change_records": data,
                "heartbeat_records": heartbeats,
                "child_partitions_records": children,
                "error": self.error,
            },
        }
