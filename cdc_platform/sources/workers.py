"""Settings of the Python processes that read sources."""

import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Final
from zipimport import zipimporter

import pyarrow as pa

Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a task does with its batches."""

NEW_OBJECTS: Final = 100_000
"""Number of new objects after which Python collects garbage; decoded events are freed without it."""


def prepare_reader() -> None:
    """Save this process repeated unnecessary work while it decodes; calling it twice is harmless.

    Python searches all live events for cycles, again with every few hundred new ones: a third of the time of
    a reader that holds many.
    """
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])


def in_worker(function: Batches) -> Batches:
    """Return a function for `mapInArrow` that prepares the worker first."""
    return partial(_prepared, function)


def _prepared(function: Batches, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    prepare_worker()
    return function(batches)


def prepare_worker() -> None:
    """Do the same as `prepare_reader` for a Python worker of Spark, at the start of a task.

    Spark adds its own archive and the jars of packages that it resolves to the path of its workers, which
    then read the directory of each one before every task: a fifth of a second, if Iceberg's jar is among
    them. And it has all objects searched for cycles after every task, modules included: a tenth of a second,
    a quarter of the time of small tasks.
    """
    prepare_reader()
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            vars(finder)["invalidate_caches"] = _keep
    _exempt_modules(len(sys.modules))


@cache
def _exempt_modules(_number: int) -> None:
    """Exempt all objects from searches for cycles, once per number of modules: most are of modules."""
    gc.freeze()


def _keep() -> None:
    """Do nothing: an archive does not change during the life of a worker."""


def keep_out_of_forks() -> None:
    """Keep gRPC from starting its threads in forked children, some of which it would abort.

    Spark's JVM is started by such a fork. Call it before a process opens its first channel.
    """
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
