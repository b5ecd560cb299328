"""What errors of Spark tell of damage to the lake; pyiceberg's tell it themselves (`lake/files.py`)."""

import re
from typing import Final

from cdc_platform.errors import LakeDamaged

_MISSING: Final = re.compile(
    r"(?:java\.io\.FileNotFoundException: File|NotFoundException: (?:Location|File) does not exist:) "
    # Tables have their files in two folders; what Spark itself keeps on disk lies in others.
    r"(?P<file>\S+/(?:data|metadata)/\S+)"
)


def find_damage(error: Exception) -> LakeDamaged | None:
    """Return the damage that a Java stack tells of: a file of a table that is missing; None for all else."""
    found = _MISSING.search(str(error))
    return LakeDamaged.missing(found["file"]) if found is not None else None
