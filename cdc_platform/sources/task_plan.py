"""Reads that are divided into tasks, which Spark or this process runs."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from cdc_platform.errors import as_source_error

_TASK_ERROR: Final = re.compile(r"cdc_platform\.errors\.(\w+): (.*)", re.ASCII)
"""The text in Spark's errors for an error of the platform that a task raised."""


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


@contextmanager
def task_errors() -> Iterator[None]:
    """Raise an error of the platform that a task of Spark raised as the source's.

    Raises:
        SourceError: a task raised it.
    """
    try:
        yield
    except Exception as error:
        texts = _TASK_ERROR.findall(str(error))
        if not texts:
            raise
        # An error comes after its cause.
        raise as_source_error(*texts[-1]) from error
