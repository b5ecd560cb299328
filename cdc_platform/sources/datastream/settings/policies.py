"""Choices that Datastream leaves to a pipeline."""

from enum import StrEnum


class BackfillPolicy(StrEnum):
    """Precedence of rows that a backfill read over changes that were captured."""

    INITIAL = "initial"
    """Less than any captured change: right while the stream has captured all changes since its backfill."""
    BY_SOURCE_TIMESTAMP = "by_source_timestamp"
    """More than changes of before it was read, less than later ones and those of the same moment: by the
    system change number with Oracle, by the second with the others."""
    FORCE = "force"
    """More than all changes of before the newest declared epoch, less than those after it."""


class OrderBy(StrEnum):
    """First criterion of the order of PostgreSQL's and SQL Server's changes."""

    POSITION = "position"
    """The log sequence number: right while one server writes one log."""
    TIMESTAMP = "timestamp"
    """The source timestamp: survives a restore that restarts the log, but not a clock that goes back."""


class KeylessPolicy(StrEnum):
    """Treatment of tables without a key."""

    APPEND = "append"
    """Every event is a row of its own, with its UUID in `_event_id`; deletes go to quarantine."""
    ROW_HASH = "row_hash"
    """A digest of its values in `_row_hash` identifies a row: equal rows are one, and an update without the
    row before it goes to quarantine."""
    REFUSE = "refuse"
    """Their events go to quarantine until a key is declared."""
