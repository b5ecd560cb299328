"""Vocabulary of change stream records, in the words of the source."""

from enum import StrEnum
from typing import Final

AGAIN_SINCE: Final = "again_since_micros"
"""Member of a report on a file: when the first was committed of transactions that seem to have come again."""


class RecordKind(StrEnum):
    """Kind of a row of `raw_change_records`."""

    DATA_CHANGE = "data_change"
    """Mods of one table and one type, made by one transaction in one partition."""
    HEARTBEAT = "heartbeat"
    """Nothing at or before its timestamp is still to come from its partition."""
    CHILD_PARTITIONS = "child_partitions"
    """The partition ended, and these partitions continue it."""
    PARTITION_START = "partition_start"
    """These partitions begin, and the partition that announces them goes on."""
    PARTITION_END = "partition_end"
    """The partition ended, and no partition continues it: its keys had moved to others."""
    PARTITION_EVENT = "partition_event"
    """Keys moved: ``child_partitions`` has the partitions they moved into, each with where they came from."""
    FILE = "file"
    """The platform's own report on one file, or on one partition of a topic: what has been read of it."""
    MESSAGE = "message"
    """A message that somebody wrote into the source's log, as a marker for cuts: no change of a row."""
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
    """The row as a backfill or a snapshot of the source found it, whether or not it is known already."""
    TRUNCATE = "TRUNCATE"
    """No row of the table exists afterwards."""
    UNKNOWN = "UNKNOWN"
    """A type that this version does not know; the record goes to quarantine."""

    @classmethod
    def _missing_(cls, _value: object) -> "ModType":
        return cls.UNKNOWN


class ValueCaptureType(StrEnum):
    """Values that the change stream captured, in force at the moment of the change."""

    OLD_AND_NEW_VALUES = "OLD_AND_NEW_VALUES"
    """Changed columns, before and after: an update is a partial update."""
    NEW_VALUES = "NEW_VALUES"
    """Changed columns, after: an update is a partial update."""
    NEW_ROW = "NEW_ROW"
    """All watched columns, after: an update is a whole row."""
    NEW_ROW_AND_OLD_VALUES = "NEW_ROW_AND_OLD_VALUES"
    """All watched columns after, and the changed ones before: an update is a whole row."""
    UNKNOWN = "UNKNOWN"
    """A type that this version does not know; updates are taken for partial ones, which is always safe."""

    @classmethod
    def _missing_(cls, _value: object) -> "ValueCaptureType":
        return cls.UNKNOWN


WHOLE_ROW_UPDATES: Final = (ValueCaptureType.NEW_ROW, ValueCaptureType.NEW_ROW_AND_OLD_VALUES)
"""The types under which an update names every watched column of the row."""
