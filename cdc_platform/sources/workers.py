"""Settings of the Python processes that read sources."""

import gc
import os
import sys
from typing import Final
from zipimport import zipimporter

NEW_OBJECTS: Final = 100_000
"""So many make Python look for garbage; what a worker decodes are trees, which are freed without it."""


def prepare_worker() -> None:
    """Spare this process work that is done again and again for nothing; calling it twice is fine.

    Spark puts its own archive and the jars of packages that it resolves on the path of its workers, and has
    these read the directory of each again before every task: a fifth of a second, if Iceberg's jar is among
    them. And Python looks for cycles among all events that are held, again with every few hundred new ones: a
    third of the time of a reader that holds many.
    """
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            vars(finder)["invalidate_caches"] = _keep
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])


def _keep() -> None:
    """Do nothing: an archive does not change while a worker lives."""


def keep_out_of_forks() -> None:
    """Keep gRPC from starting its threads in forked children, where it aborts some of them.

    Spark's JVM is started by such a fork. It counts before the first channel of a process is opened.
    """
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
