"""Choices that Datastream leaves to a pipeline."""

from enum import StrEnum


class BackfillPolicy(StrEnum):
    """Precedence of backfilled rows over captured changes."""

    INITIAL = "initial"
    """Below any captured change: right if the stream has captured all changes since its backfill."""
    BY_SOURCE_TIMESTAMP = "by_source_timestamp"
    """Above changes before its read, below later ones and those of the same time: by the system change number
    for Oracle, by the second for other sources."""
    FORCE = "force"
    """Above all changes before the newest declared epoch, below those after it."""


class OrderBy(StrEnum):
    """First criterion of the order of PostgreSQL's and SQL Server's changes."""

    POSITION = "position"
    """The log sequence number: right while one server writes one log."""
    TIMESTAMP = "timestamp"
    """The source timestamp: survives a restore that restarts the log, but not a clock that goes back."""


class KeylessPolicy(StrEnum):
    """Treatment of tables without a key."""

    APPEND = "append"
    """Every event is a separate row, with its UUID in `_event_id`; deletes go to quarantine."""
    ROW_HASH = "row_hash"
    """A digest of its values in `_row_hash` identifies a row: equal rows are one row, and an update without
    the old row goes to quarantine."""
    REFUSE = "refuse"
    """Their events go to quarantine until a key is declared."""
