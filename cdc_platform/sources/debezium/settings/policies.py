"""Policies for cases that events leave open."""

from enum import StrEnum


class Strategy(StrEnum):
    """Treatment of a value that the source did not send."""

    OMIT = "omit"
    """The merge omits the column: the stored value stays. The log keeps the column unavailable."""
    VETO = "veto"
    """The change names the column, marked as unavailable, and the table vetoes the change of this value."""
    ENRICH = "enrich"
    """The log itself is completed from the batch and the tables, so that every reader sees whole rows."""


class SnapshotPolicy(StrEnum):
    """Effect of a repeated snapshot on rows that it does not have."""

    MERGE = "merge"
    """The rows stay and are reported."""
    REPLACE = "replace"
    """The rows are removed: the snapshot is the whole table."""


class NullPolicy(StrEnum):
    """Meaning of a null in an update, where the column's type has no marker for an unavailable value."""

    UNAVAILABLE = "unavailable"
    """The value was not sent: a real change to NULL is missed."""
    NULL = "null"
    """The value is NULL: a value that was not sent is lost."""
    ERROR = "error"
    """The event goes to quarantine until the meaning is configured."""
