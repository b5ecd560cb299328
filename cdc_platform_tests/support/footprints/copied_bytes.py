"""Counts of the memory that readers of a stream allocate, by which linear and quadratic readers differ."""

import tracemalloc
from io import BytesIO
from typing import Self


class MeasuredStream(BytesIO):
    """A stream that adds up the memory allocated between its reads, even if it was freed again.

    Anyone who copies what it has read so far at each read allocates that much again each time. Use it as a
    context manager.
    """

    allocated_bytes = 0
    largest_bytes = 0
    """Peak bytes allocated, beyond those at the first read of the stream."""
    _used_bytes = 0

    def __enter__(self) -> Self:
        """Begin to count."""
        tracemalloc.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Count what was allocated after the last read, and end."""
        self._count()
        tracemalloc.stop()

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next octets; what was allocated since the last read counts."""
        self._count()
        found = super().read(size)
        self._begin()
        return found

    def _count(self) -> None:
        peak_bytes = tracemalloc.get_traced_memory()[1]
        self.allocated_bytes += peak_bytes - self._used_bytes
        self.largest_bytes = max(self.largest_bytes, peak_bytes)
        self._begin()

    def _begin(self) -> None:
        self._used_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
