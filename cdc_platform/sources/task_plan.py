"""Reads that are divided into tasks, which Spark or this process runs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class TaskPlan:
    """A read that is divided into tasks.

    Args:
        schema: the columns of the result.
        read: yields the batches of a part, in a worker; it imports libraries there, since workers are forked.
        parts: the part of each task.
    """

    schema: pa.Schema
    read: Callable[[Any], Iterator[pa.RecordBatch]]
    parts: Sequence[Any]
