"""Vocabulary of the change log."""

from enum import StrEnum


class ChangeKind(StrEnum):
    """What a change does to its row, or to its table."""

    INSERT = "insert"
    """The row begins to exist."""
    UPDATE = "update"
    """Some or all columns of an existing row take new values."""
    DELETE = "delete"
    """The row ceases to exist."""
    TRUNCATE = "truncate"
    """Every row of the table ceases to exist."""
    SNAPSHOT = "snapshot"
    """The row as an initial copy found it, whether or not it is known already."""
