"""Errors of the engine: translation of Java's exception chains into the platform's errors."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from cdc_platform.errors import (
    AccessDenied,
    CaptureStopped,
    CdcError,
    DiskFull,
    ReplicationRefused,
    SlotInUse,
    SlotOutrun,
    SourceError,
    SourceNotFound,
    SourceUnreachable,
)
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput


@dataclass(frozen=True)
class ErrorMeaning:
    """Meaning of an exception.

    Args:
        pattern: regular expression to find in the text of any exception in the chain.
        kind: the platform's error.
        advice: the remedy.
    """

    pattern: str
    kind: type[SourceError]
    advice: str


MEANINGS: Final = (
    ErrorMeaning(
        r"OutOfMemoryError",
        CaptureStopped,
        "The rows are too large for the engine's memory of 1 GB: set the property `snapshot.fetch.size` to "
        "less than 100 if it was reading a snapshot, or exclude a column with `column.exclude.list`.",
    ),
    ErrorMeaning(
        r"no longer available on the server|slot is ahead|ahead of the",
        SlotOutrun,
        "The slot is gone or was recreated, and the changes in between are lost to it. Begin with a new "
        "spool and a new lake, or set `snapshot` to `when_needed`, which reads all rows again.",
    ),
    ErrorMeaning(
        # The server looks for the publication as it was at each change, so a new one does not help.
        r"publication \".*\" does not exist",
        SlotOutrun,
        "The publication was dropped, and the server cannot deliver the changes from before it is created "
        "again. Drop the slot with `pg_drop_replication_slot`, and begin with a new spool and a new lake, or "
        "set `snapshot` to `when_needed`, which reads all rows again.",
    ),
    ErrorMeaning(r"slot \S+ is active", SlotInUse, "Another engine or connector reads the slot: stop it."),
    ErrorMeaning(
        r"wal_level|logical decoding requires",
        ReplicationRefused,
        "Set `wal_level = logical` in the server's configuration and restart it.",
    ),
    ErrorMeaning(
        r"replication role|start (WAL|wal) ?sender|permission denied to (create|use) replication",
        ReplicationRefused,
        "The role needs the right to replicate: `ALTER ROLE ... REPLICATION`, or what the provider has for "
        "it.",
    ),
    ErrorMeaning(
        r"all replication slots are in use|max_wal_senders",
        ReplicationRefused,
        "The server has no replication slot left: drop one that is not used, or raise "
        "`max_replication_slots` and `max_wal_senders`.",
    ),
    ErrorMeaning(
        r"No table filters found",
        SourceNotFound,
        "No table of the database is one of `tables`: check their names, `SCHEMA.TABLE`.",
    ),
    ErrorMeaning(
        r"[Pp]ublication",
        ReplicationRefused,
        "The publication cannot be made or used: let the owner of the tables create it (`CREATE PUBLICATION "
        "... FOR TABLE ...`), and set the property `publication.autocreate.mode` to `disabled`.",
    ),
    ErrorMeaning(
        r"password authentication|no pg_hba\.conf entry", AccessDenied, "Check `user` and `password`."
    ),
    ErrorMeaning(
        r"permission denied",
        AccessDenied,
        "Grant the role USAGE on the schemas and SELECT on the tables.",
    ),
    ErrorMeaning(
        r"Failed to properly convert|null used for required field",
        CaptureStopped,
        "The engine does not know the value of a column that an update left unchanged, and the column's type "
        "has no marker for that. Exclude the column with `column.exclude.list`, or, if it may be null, set "
        "`event.converting.failure.handling.mode` to `warn`. `ALTER TABLE ... REPLICA IDENTITY FULL` "
        "prevents such changes in the future.",
    ),
    ErrorMeaning(
        # The connector reads the labels of all enums when it starts, and such types have none of their own.
        r"ResultSet\.getArray",
        CaptureStopped,
        "The connector cannot start while the database has a domain over an enum, or an enum without values, "
        "even if no table uses it. Find these types with `SELECT oid::regtype FROM pg_type WHERE typcategory "
        "= 'E' AND oid NOT IN (SELECT enumtypid FROM pg_enum)`; use the enum itself in place of the domain, "
        "and drop them.",
    ),
    ErrorMeaning(
        r"configuration is not valid", CaptureStopped, "The engine rejects a property: check `properties`."
    ),
    ErrorMeaning(
        r"terminating connection|[Cc]onnection.*refused|connection attempt failed|I/O error|EOFException"
        r"|Connection reset|closed",
        SourceUnreachable,
        "The connection broke and could not be restored.",
    ),
)
FULL: Final = r"(?:java\.io\.|Errno ).*(?:No space left on device|Disk quota exceeded)"
"""Error text of this machine; PostgreSQL adds its own text to that of the database server."""
LONGEST_CHAIN: Final = 20


def failure_of(failure: Any, settings: EngineInput) -> CdcError:
    """Return the platform's error for the failure that ended the engine."""
    if isinstance(failure, CdcError):
        return failure
    chain = list(dict.fromkeys(texts_of(failure)))
    disk_error = next((text for text in chain if re.search(FULL, text)), None)
    if disk_error is not None:
        return DiskFull(disk_error)
    for meaning in MEANINGS:
        if any(re.search(meaning.pattern, text) for text in chain):
            return meaning.kind(f"{meaning.advice} Source: {settings.database_text()}: {chain[-1]}")
    return CaptureStopped(f"The engine has stopped. Source: {settings.database_text()}: {' / '.join(chain)}")


def texts_of(failure: Any) -> Iterator[str]:
    """Yield the texts of a Java or Python exception and of its causes."""
    for _ in range(LONGEST_CHAIN):
        if failure is None:
            return
        yield str(failure).strip()
        failure = failure.getCause() if hasattr(failure, "getCause") else failure.__cause__
