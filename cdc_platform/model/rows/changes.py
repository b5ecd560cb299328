"""Vocabulary of the change log."""

from enum import StrEnum


class ChangeKind(StrEnum):
    """Effect of a change on its row, or on its table; Spanner reports the first three only."""

    INSERT = "insert"
    """The row begins to exist."""
    UPDATE = "update"
    """Some or all columns of an existing row take new values."""
    DELETE = "delete"
    """The row ceases to exist."""
    TRUNCATE = "truncate"
    """Every row of the table ceases to exist."""
    SNAPSHOT = "snapshot"
    """The row as a snapshot or backfill of the source found it, whether or not it is known already."""
