"""Damage to the lake, and full disks, as errors of libraries report them.

Files that pyiceberg misses report it themselves (`lake/catalog/files.py`), and rows that the platform cannot
have written where they are read (`model/base/stored_texts.py`).
"""

import re
from typing import Final

from cdc_platform.errors import DiskFull, LakeDamaged

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
        match = _FULL.search(str(error))
        if match is not None:
            return DiskFull(match[0].strip(" :\t"))
        error = error.__cause__ or error.__context__
    return None


def find_damage(error: Exception) -> LakeDamaged | None:
    """Return the damage that a Java stack reports, a missing file of a table; None for other errors."""
    match = _MISSING.search(str(error))
    return LakeDamaged.missing(match["file"]) if match is not None else None
