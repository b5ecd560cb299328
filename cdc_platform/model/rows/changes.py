"""Vocabulary of the change log."""

from enum import StrEnum


class ChangeKind(StrEnum):
    """Effect of a change on its row or its table; Spanner reports only the first three."""

    INSERT = "insert"
    """The row begins to exist."""
    UPDATE = "update"
    """Some or all columns of an existing row take new values."""
    DELETE = "delete"
    """The row ceases to exist."""
    TRUNCATE = "truncate"
    """Every row of the table ceases to exist."""
    SNAPSHOT = "snapshot"
    """A row in a snapshot or backfill of the source, whether it is new or not."""
