"""Slices: the bounded reads that a tick consists of."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class Slice:
    """One bounded read of one partition, `(start_exclusive, end_inclusive]`."""

    token: str
    start_exclusive_micros: int
    end_inclusive_micros: int


class SliceOutcome(StrEnum):
    """How the read of a slice ended."""

    COMPLETE = "complete"
    """It was read to its end."""
    FINISHED = "finished"
    """The partition ended inside it, and its children are announced."""
    INTERRUPTED = "interrupted"
    """The read failed; the reported end is what is complete."""


@dataclass(frozen=True)
class SliceReport:
    """What became of a slice: everything up to `end_inclusive_micros` has been read."""

    token: str
    start_exclusive_micros: int
    end_inclusive_micros: int
    outcome: SliceOutcome
    error: str | None = None
