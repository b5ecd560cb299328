"""Kinds of raw records and of changes, and operations and capture types as the source names them."""

from enum import StrEnum
from typing import Final

AGAIN_SINCE: Final = "again_since_micros"
"""Member of a file's report: earliest commit time of the transactions that seem to have arrived again."""


class RecordKind(StrEnum):
    """Kind of a row of `raw_change_records`."""

    DATA_CHANGE = "data_change"
    """Mods of one table and one type, made by one transaction in one partition."""
    HEARTBEAT = "heartbeat"
    """Its partition has delivered everything up to its timestamp."""
    CHILD_PARTITIONS = "child_partitions"
    """The partition ended, and these partitions continue it."""
    PARTITION_START = "partition_start"
    """These partitions begin, and the partition that announces them continues."""
    PARTITION_END = "partition_end"
    """The partition ended, and no partition continues it: its keys had moved to others."""
    PARTITION_EVENT = "partition_event"
    """Keys moved: ``child_partitions`` has the partitions they moved into, each with its origin."""
    FILE = "file"
    """The platform's own report on the read of one file, or of one partition of a topic."""
    MESSAGE = "message"
    """A message that a user wrote into the source's log as a marker for cuts; it changes no row."""
    READ_WINDOW = "read_window"
    """The platform's own report on one window: its bounds, its outcome, its counts."""


class ModType(StrEnum):
    """Operation of a transaction on a row."""

    INSERT = "INSERT"
    """The row did not exist before the transaction."""
    UPDATE = "UPDATE"
    """The row existed, and exists afterwards."""
    DELETE = "DELETE"
    """The row existed, and does not afterwards."""
    SNAPSHOT = "SNAPSHOT"
    """The row as a backfill or a snapshot of the source found it; the lake may have the row already."""
    TRUNCATE = "TRUNCATE"
    """No row of the table exists afterwards."""
    UNKNOWN = "UNKNOWN"
    """A type that this version does not know; the record goes to quarantine."""

    @classmethod
    def _missing_(cls, _value: object) -> "ModType":
        return cls.UNKNOWN


class ValueCaptureType(StrEnum):
    """The change stream's option for captured values at the time of the change."""

    OLD_AND_NEW_VALUES = "OLD_AND_NEW_VALUES"
    """Changed columns, before and after: an update is a partial update."""
    NEW_VALUES = "NEW_VALUES"
    """Changed columns, after: an update is a partial update."""
    NEW_ROW = "NEW_ROW"
    """All watched columns, after: an update is a whole row."""
    NEW_ROW_AND_OLD_VALUES = "NEW_ROW_AND_OLD_VALUES"
    """All watched columns after, and the changed ones before: an update is a whole row."""
    UNKNOWN = "UNKNOWN"
    """A type that this version does not know; its updates count as partial, which is always safe."""

    @classmethod
    def _missing_(cls, _value: object) -> "ValueCaptureType":
        return cls.UNKNOWN


WHOLE_ROW_UPDATES: Final = (ValueCaptureType.NEW_ROW, ValueCaptureType.NEW_ROW_AND_OLD_VALUES)
"""The types with updates that name every watched column of the row."""


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
