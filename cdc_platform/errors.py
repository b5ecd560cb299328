"""Errors of the platform.

* CdcError
  x SettingError              a setting cannot be used
  x SetupError                a program or library that the platform needs is missing
    + JavaMissing               no Java, or one too old
    + JarsUnavailable           Spark's packages could not be fetched
    + SparkUnreachable          Spark's process has ended, or the named server does not answer
    + OutOfMemory               Spark has too little memory
    + LibraryMissing            an optional library is not installed
    + SpoolUnusable             the folder between capture and pipeline cannot be written
  x SourceError               the source could not be read
    + SourceUnreachable         no answer in time (retry)
      - PartitionStuck            neither records nor heartbeats of a partition (retry)
    + AccessDenied              the credentials may not read it
    + SourceNotFound            no such instance, database or change stream
    + StreamWatchesNothing      the change stream watches no table
    + DialectMismatch           the database has another dialect than the setting states
    + RetentionExpired          the start lies before the change stream's retention
    + CopyExpired               the version of the source that a copy reads is gone
    + KeyUnfit                  the lake cannot store a key of the source exactly
    + PartitionBoundsInvalid    the read began outside the partition's life
    + RecordUnreadable          a record does not have the documented shape
    + QueryRefused              the source rejects a query
    + DefinitionRefused         the source refuses a definition of a change stream or a table
    + ReplicationRefused        the database is not set up for replication
    + SlotInUse                 another process reads the replication slot (retry)
    + SlotOutrun                the replication slot no longer has the next changes
    + OffsetsLost               a topic or a spool no longer has the next messages
    + CaptureStopped            the engine cannot convert or handle a change
  x OrderError                the log cannot be put in commit order
    + TransactionIncomplete     fewer or more records arrived than the transaction announced
    + CheckFailed               a check of the log failed, and publication stops
  x LakeError                 a table of the lake could not be read or committed
    + CommitConflict            another run committed first (retry)
    + LakeAccessDenied          the credentials may not use the catalog or the object store
    + LakeUnreachable           the catalog or the object store does not answer (retry)
    + ClockBehind               this machine's clock is behind the newest commit to a table (retry)
    + LakeDamaged               the catalog, a table or a file is missing or unreadable
    + DiskFull                  no disk space is left (retry)
    + LakeFormatUnknown         the lake was written by a newer version of the platform
    + CutNotFound               no such cut, or its snapshots have expired
    + PipelineNotFound          no lake at this location, or the pipeline has never run there
    + ValueUnfit                a value of the log does not fit the type of its column
      - ChangeUnparsed            Spark cannot parse the keys or the values of a change
    + TableNotFound             the lake has no such table of the pipeline
    + RowNotFound               the change log has no change of such a row
    + QuarantinedRecordNotFound        quarantine has no such record
"""

from collections.abc import Mapping
from typing import ClassVar

from cdc_platform.redaction import redact
from cdc_platform.visible import visible_text


class CdcError(Exception):
    """Base of all errors that the platform raises on purpose.

    ``retryable`` states whether the same call may succeed later although nobody changes anything.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "") -> None:
        # Errors end up in logs and pages, and their texts contain addresses from libraries, and names and
        # values of the source.
        super().__init__(visible_text(redact(message)))


class SettingError(CdcError, ValueError):
    """A setting cannot be used; ``setting`` is its dotted name, ``problem`` states what to change."""

    def __init__(self, setting: str, problem: str) -> None:
        self.setting, self.problem = setting, problem
        super().__init__(f"Setting `{setting}` {problem}")


class SetupError(CdcError):
    """A program or library that the platform needs is missing."""


class JavaMissing(SetupError):
    """No Java, or one too old, was found."""


class JarsUnavailable(SetupError):
    """Spark's packages could not be fetched."""


class SparkUnreachable(SetupError):
    """Spark's process has ended, or the named server does not answer."""


class OutOfMemory(SetupError):
    """Spark has too little memory."""


class LibraryMissing(SetupError):
    """An optional library is not installed."""


class SpoolUnusable(SetupError):
    """The folder of files between the capture and the pipeline cannot be written or understood."""


class SourceError(CdcError):
    """The source could not be read."""


class SourceUnreachable(SourceError):
    """The source gave no answer in time."""

    retryable = True


class PartitionStuck(SourceUnreachable):
    """A partition sends neither records nor heartbeats, even when it is queried again."""


class AccessDenied(SourceError):
    """The credentials may not read the source."""


class SourceNotFound(SourceError):
    """The instance, database or change stream does not exist."""


class StreamWatchesNothing(SourceError):
    """The change stream watches no table, so there is nothing to materialise."""


class DialectMismatch(SourceError):
    """The database has another dialect than the setting states."""


class RetentionExpired(SourceError):
    """The start of the read lies before the change stream's retention: records are lost."""


class CopyExpired(SourceError):
    """The version of the source that a copy was reading is gone: the copy must start over."""


class KeyUnfit(SourceError):
    """A key of the source has more digits than its column in the lake: two rows could become one."""


class PartitionBoundsInvalid(SourceError):
    """The read began outside the life of its partition: a position is wrong."""


class RecordUnreadable(SourceError):
    """A record does not have the shape that the source documents."""


class QueryRefused(SourceError):
    """The source rejects a query: a setting is out of bounds, or the platform built a wrong query."""


class DefinitionRefused(SourceError):
    """The source refuses to create, alter or drop a change stream, or what a change stream watches."""


class ReplicationRefused(SourceError):
    """The database's settings or grants do not allow reading its changes."""


class SlotInUse(SourceError):
    """Another process reads the replication slot, or writes into the spool."""

    retryable = True


class SlotOutrun(SourceError):
    """The replication slot is gone, or no longer has the next changes: they are lost."""


class OffsetsLost(SourceError):
    """A topic or a spool is gone, or no longer has the next messages: they are lost."""


class CaptureStopped(SourceError):
    """The engine stopped at a change that it cannot convert or handle."""


class OrderError(CdcError):
    """The log cannot be put in commit order."""


class TransactionIncomplete(OrderError):
    """Fewer or more records arrived than the transaction announced, although all have been read."""

    def __init__(self, transaction_id: str, expected: int, seen: int) -> None:
        self.transaction_id, self.expected, self.seen = transaction_id, expected, seen
        super().__init__(
            f"Transaction `{transaction_id}` has {seen} of {expected} records at the watermark. "
            "Nothing from it on enters the change log or is published, because the tables would differ from "
            "the source. Report it with its raw records; to continue without it, begin a new lake."
        )


class CheckFailed(OrderError):
    """Checks of the log failed; ``findings`` has their summaries, by the names of the checks."""

    def __init__(self, findings: Mapping[str, str]) -> None:
        self.findings = findings
        texts = "; ".join(f"`{name}`: {summary}" for name, summary in findings.items())
        super().__init__(
            f"The log fails its checks, so no more of it is published: {texts}. Readers keep the newest "
            "cut. `cdc-platform check DEFS` checks the whole log; report its output. If you leave the "
            "setting `check_every_s` empty, cycles continue unchecked."
        )


class LakeError(CdcError):
    """A table of the lake could not be read or committed."""


class CommitConflict(LakeError):
    """Another run committed first; the refused commit of this one changed nothing."""

    retryable = True

    @classmethod
    def of(cls, table: str) -> "CommitConflict":
        """Return the error for a table after the catalog rejected each attempt to commit."""
        return cls(f"The catalog rejects each commit to `{table}` as outdated; the next cycle tries again.")


class LakeAccessDenied(LakeError):
    """The credentials may not use the lake's catalog or its object store."""


class LakeUnreachable(LakeError):
    """The lake's catalog or its object store does not answer."""

    retryable = True


class ClockBehind(LakeError):
    """This machine's clock is behind the newest commit to a table, and commits cannot go back in time."""

    retryable = True

    def __init__(self, text: str) -> None:
        super().__init__(
            "This machine's clock is behind the newest commit to a table of the lake, and Iceberg's commits "
            "go back by a minute at most: set the clock right. If it was ahead at that commit, cycles "
            f"continue by themselves once the clock has reached the commit's time. {text}"
        )


class LakeDamaged(LakeError):
    """The catalog, a table or a file of a table is missing or unreadable; ``place`` names it.

    ``missing_file`` is the location of a table's file that does not exist.
    """

    def __init__(
        self, place: str, problem: str, missing_file: str | None = None, remedy: str | None = None
    ) -> None:
        self.place, self.problem, self.missing_file = place, problem, missing_file
        remedy = remedy or (
            "Restore the file from a backup. If the lake was restored, restore a backup of the catalog that "
            "is not newer than the files. Or name another lake in the setting `lake.path`; it is built from "
            "the data that the source still has."
        )
        super().__init__(f"The lake is damaged, {place}: {problem}. {remedy}")

    def but(self, remedy: str) -> "LakeDamaged":
        """Return the same damage with another remedy."""
        return LakeDamaged(self.place, self.problem, self.missing_file, remedy)

    @classmethod
    def missing(cls, location: str) -> "LakeDamaged":
        """Return the error for a missing file that the lake's metadata names."""
        return cls(f"file {location}", "it no longer exists", location)

    @classmethod
    def dropped(cls, table: str) -> "LakeDamaged":
        """Return the error for one of the platform's own tables that is gone."""
        return cls._of_own(table, "another program has dropped it, or its metadata file is missing")

    @classmethod
    def replaced(cls, table: str) -> "LakeDamaged":
        """Return the error for one of the platform's own tables with another one in its place."""
        return cls._of_own(
            table,
            "another program has replaced it, or it alone was restored, so it lacks what was stored there",
        )

    @classmethod
    def _of_own(cls, table: str, problem: str) -> "LakeDamaged":
        remedy = "Restore the catalog and all tables of the pipeline from one backup, or name another lake."
        return cls(f"table `{table}`", problem, remedy=remedy)


class DiskFull(LakeError):
    """No disk space is left; ``text`` is the system's message."""

    # The user frees space within minutes, and expiry or another program may do so earlier.
    retryable = True

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            "No disk space is left for the lake, the spool of an embedded engine, or Spark's temporary files "
            "(`spark.local.dir` in the setting `spark.conf`). Committed data stays, and unfinished work does "
            "not count. Free some space; `sync --continuous` and Dagster's sensor then continue by "
            f"themselves, and you start other commands again. {text}"
        )


class LakeFormatUnknown(LakeError):
    """The lake was written in a format that this version does not know."""


class CutNotFound(LakeError):
    """The cut does not exist, or its snapshots have expired."""


class PipelineNotFound(LakeError):
    """There is no lake at this location, or the pipeline has never run there."""


class ValueUnfit(LakeError):
    """A value of the change log does not fit the type of its column; nothing of its cycle is published."""

    def __init__(self, table: str, column: str, type_name: str, value: str, key: str) -> None:
        self.table, self.column, self.type_name, self.value, self.key = table, column, type_name, value, key
        super().__init__(
            f"Table `{table}`, key {key}: the value of the column `{column}` does not fit the type "
            f"{type_name}, and its record does not state another type of the column. Nothing of the "
            "cycle is published. Report it with the raw record; to continue without it, begin a new lake. "
            f"Value: {value}"
        )


class ChangeUnparsed(ValueUnfit):
    """Spark cannot parse the keys or the new values of a change; nothing of its cycle is published."""

    def __init__(self, table: str, part: str, value: str, key: str) -> None:
        super().__init__(table, part, "JSON", value, key)
        message = (
            f"Table `{table}`, key {key}: Spark cannot parse the `{part}` of a change as a JSON object. Its "
            "limits are 20,000,000 characters for a string, 50,000 for a name, 1,000 digits for a number, "
            "and 1,000 levels. Nothing of the cycle is published. Report it with the raw record; to continue "
            f"without it, begin a new lake. The text begins: {value}"
        )
        self.args = (message,)


class TableNotFound(LakeError):
    """The lake has no such table of the pipeline."""


class RowNotFound(LakeError):
    """The change log has no change of such a row."""


class QuarantinedRecordNotFound(LakeError):
    """Quarantine has no such record."""


def as_source_error(name: str, message: str) -> SourceError:
    """Return the error that a Spark task raised, from the name and text that reach the driver.

    If only a task rejects a setting or lacks a library, such as a file of its machine, a retry does not help.
    """
    kind = globals().get(name)
    if not (isinstance(kind, type) and issubclass(kind, CdcError)):
        return SourceUnreachable(message or name)
    if issubclass(kind, SourceError):
        return kind(message)
    return SourceUnreachable(message) if kind.retryable else SourceError(message)
