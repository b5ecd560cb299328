"""What Spark's workers import from."""

import sys
from zipimport import zipimporter


def trust_archives() -> None:
    """Keep this process from reading the archives that it imports from more than once.

    Spark puts its own archive and every fetched jar on the path of its workers, and has these read the
    directory of each anew before every task: a fifth of a second, most of it for Iceberg's jar.
    """
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            vars(finder)["invalidate_caches"] = _keep


def _keep() -> None:
    """Do nothing: an archive does not change while a worker lives."""
