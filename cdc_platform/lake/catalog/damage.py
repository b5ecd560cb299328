"""Damage to the lake: rows that the platform cannot have written, and what errors of libraries tell of it.

Files that pyiceberg misses tell it themselves (`lake/catalog/files.py`).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cdc_platform.errors import CdcError, DiskFull, LakeDamaged

_MISSING: Final = re.compile(
    r"(?:java\.io\.FileNotFoundException: File|NotFoundException: (?:Location|File) does not exist:) "
    # Tables have their files in two folders; what Spark itself keeps on disk lies in others.
    r"(?P<file>\S+/(?:data|metadata)/\S+)"
)


_FULL: Final = re.compile(
    r"[^\n]{0,200}(?:No space left on device|Disk quota exceeded|database or disk is full)", re.IGNORECASE
)


def find_full(error: BaseException | None) -> DiskFull | None:
    """Return the full disk that an error or one of its causes reports; None for other errors."""
    while error is not None:
        found = _FULL.search(str(error))
        if found is not None:
            return DiskFull(found[0].strip(" :\t"))
        error = error.__cause__ or error.__context__
    return None


def find_damage(error: Exception) -> LakeDamaged | None:
    """Return the damage that a Java stack reports, a missing file of a table; None for other errors."""
    found = _MISSING.search(str(error))
    return LakeDamaged.missing(found["file"]) if found is not None else None


@contextmanager
def understanding(table_name: str) -> Iterator[None]:
    """Take what goes wrong while rows or summaries of an own table are read as damage to it.

    Raises:
        LakeDamaged: one of them is none of the platform's.
    """
    try:
        yield
    except CdcError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise LakeDamaged(
            f"its table `{table_name}`", f"what it holds is not the platform's ({told})"
        ) from error
