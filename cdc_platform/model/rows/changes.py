"""Vocabulary of the change log."""

from enum import StrEnum


class ChangeKind(StrEnum):
    """Effect of a change on its row, or on its table.

    Spanner reports INSERT, UPDATE and DELETE only; the others are reserved for sources to come, so that
    persisted logs need no new format for them.
    """

    INSERT = "insert"
    """The row begins to exist."""
    UPDATE = "update"
    """Some or all columns of an existing row take new values."""
    DELETE = "delete"
    """The row ceases to exist."""
    TRUNCATE = "truncate"
    """Every row of the table ceases to exist. Reserved: nothing writes it yet."""
    SNAPSHOT = "snapshot"
    """The row as an initial copy found it, whether or not it is known already. Reserved: nothing writes it
    yet, since copies of Spanner's tables go past the log.
    """
