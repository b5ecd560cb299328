"""The partitions of a fake change stream: ranges of a key space that split, merge and move over time."""

import json
import zlib
from dataclasses import dataclass
from typing import Final

from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform_tests.support.history import Key

BUCKETS: Final = 16
"""Size of the key space that the partitions divide."""


@dataclass(frozen=True)
class Span:
    """A partition: the buckets `[low, high)` from `start_micros` until just before `end_micros`."""

    token: str
    low: int
    high: int
    start_micros: int
    end_micros: int | None
    parents: tuple[str, ...]


@dataclass(frozen=True)
class PartitionTree:
    """All partitions of a stream's life; at any moment they divide the key space."""

    spans: tuple[Span, ...]
    start_micros: int

    def span(self, token: str) -> Span:
        """Return a partition by its token."""
        return next(span for span in self.spans if span.token == token)

    def life(self, token: str) -> tuple[int, int | None]:
        """Return when a partition starts, and when its children do; the root ends at once."""
        if token == ROOT_TOKEN:
            return self.start_micros, self.start_micros
        span = self.span(token)
        return span.start_micros, span.end_micros

    def children(self, token: str) -> tuple[Span, ...]:
        """Return the partitions that continue one; those of the root are the first ones."""
        return tuple(
            span for span in self.spans if token in span.parents or (token == ROOT_TOKEN and not span.parents)
        )

    def locate(self, table: str, key: Key, commit_micros: int) -> str:
        """Return the token of the partition that returns a change."""
        place = zlib.crc32(json.dumps([table, *key]).encode()) % BUCKETS
        return next(
            span.token
            for span in self.spans
            if span.low <= place < span.high
            and span.start_micros <= commit_micros
            and (span.end_micros is None or commit_micros < span.end_micros)
        )
