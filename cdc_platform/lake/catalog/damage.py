"""Damage to the lake, and full disks, detected in errors of libraries.

Missing files of pyiceberg (`lake/catalog/files.py`) and invalid rows (`model/base/stored_texts.py`) report
themselves.
"""

import re
from typing import Final

from cdc_platform.errors import DiskFull, LakeDamaged

_MISSING: Final = re.compile(
    r"(?:java\.io\.FileNotFoundException: File|NotFoundException: (?:Location|File) does not exist:) "
    # Tables have their files in two folders; Spark's own files on disk are in others.
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
    """Return the damage in a Java stack, a missing file of a table; None for other errors."""
    match = _MISSING.search(str(error))
    return LakeDamaged.missing(match["file"]) if match is not None else None
