"""What the engine's errors mean: Java's chains of exceptions become the platform's errors."""

import re
from collections.abc import Iterator
from typing import Any, Final

from cdc_platform.errors import (
    AccessDenied,
    CaptureStopped,
    CdcError,
    ReplicationRefused,
    SlotInUse,
    SourceError,
)
from cdc_platform.sources.debezium.engine_settings import EngineSettings

Meaning = tuple[str, type[SourceError], str]

MEANINGS: Final[tuple[Meaning, ...]] = (
    # pattern in the text of an exception; what it is; what to do
    (
        r"password authentication failed|no pg_hba\.conf entry|SCRAM|role \S+ does not exist|28P01|28000",
        AccessDenied,
        "Check user and password, and that pg_hba.conf lets the role in.",
    ),
    (
        r"wal_level",
        ReplicationRefused,
        "Set `wal_level = logical` in the server's configuration and restart the server.",
    ),
    (
        r"replication slot \S+ is active|slot \S+ is already active|55006",
        SlotInUse,
        "Another engine or connector reads the slot: stop it, or give this one a slot of its own.",
    ),
)


def failure_of(failure: Any, settings: EngineSettings) -> CdcError:
    """Return the platform's error for what has ended the engine."""
    if isinstance(failure, CdcError):
        return failure
    said = list(dict.fromkeys(texts_of(failure)))
    place = f"{settings.host}:{settings.port}, database {settings.database}, slot {settings.slot}"
    for pattern, kind, advice in MEANINGS:
        if any(re.search(pattern, text) for text in said):
            return kind(f"{advice} Engine of {place}: {' / '.join(said)}")
    return CaptureStopped(f"The engine stopped. Engine of {place}: {' / '.join(said)}")


def texts_of(failure: Any) -> Iterator[str]:
    """Yield the texts of an exception and of what has caused it."""
    seen = 0
    while failure is not None and seen < 20:
        yield str(failure).strip()
        failure = failure.getCause() if hasattr(failure, "getCause") else failure.__cause__
        seen += 1
