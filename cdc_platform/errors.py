"""Errors of the platform.

* CdcError
  x SettingError              a setting cannot be used as it is
  x SetupError                a program or library that the platform needs is missing
    + JavaMissing               no Java, or one too old
    + JarsUnavailable           Spark's packages could not be fetched
    + SparkUnreachable          the named Spark server does not answer
    + LibraryMissing            an optional library is not installed
    + SpoolUnusable             the folder between capture and pipeline cannot be written
  x SourceError               the source could not be read
    + SourceUnreachable         no answer in time (retry)
      - PartitionStuck            neither records nor heartbeats of a partition (retry)
    + AccessDenied              the credentials may not read it
    + SourceNotFound            no such instance, database or change stream
    + StreamWatchesNothing      the change stream watches no table
    + DialectMismatch           the database speaks another dialect than the setting says
    + RetentionExpired          the start lies before the change stream's retention
    + CopyExpired               the version of the source that a copy reads is gone
    + KeyUnfit                  a key of the source would not stay itself in the lake
    + PartitionBoundsInvalid    the read began outside the partition's life
    + RecordUnreadable          a record has not the shape that the source documents
    + QueryRefused              the source refuses a query as it is written
    + DefinitionRefused         the source refuses a definition of a change stream or a table
    + ReplicationRefused        the database is not set up to hand out its changes
    + SlotInUse                 somebody else reads the replication slot (retry)
    + SlotOutrun                the replication slot no longer has what comes next
    + OffsetsLost               a topic or a spool no longer has what comes next
    + CaptureStopped            the engine met something that it cannot convert or handle
  x OrderError                the log cannot be put in commit order
    + TransactionIncomplete     not as many records arrived as the transaction announced
    + CheckFailed               a check of the log failed, and nothing more of it is published
  x LakeError                 a table of the lake could not be read or committed
    + CommitConflict            another run committed first (retry)
    + LakeAccessDenied          the credentials may not use the catalog or the object store
    + LakeUnreachable           the catalog or the object store does not answer (retry)
    + ClockBehind               this machine's clock is behind the newest commit to a table (retry)
    + LakeDamaged               the catalog, or a file that it names, is missing or unreadable
    + DiskFull                  there is no room for what is written (retry)
    + LakeFormatUnknown         the lake was written by a newer version of the platform
    + CutNotFound               no such cut, or its snapshots have expired
    + PipelineNotFound          no lake at the place, or the pipeline has never run there
    + ValueUnfit                a value of the log does not fit the type of its column
      - ChangeUnparsed            Spark does not read the keys or the values of a change at all
    + TableNotFound             the lake has no such table of the pipeline
    + RowNotFound               no change of such a row is in the change log
    + QuarantinedRecordNotFound        no such record lies in quarantine
"""

from collections.abc import Mapping
from typing import ClassVar

from cdc_platform.redaction import redacted
from cdc_platform.visible import visible_text


class CdcError(Exception):
    """Base of all errors that the platform raises on purpose.

    ``retryable`` says whether the same call may succeed later without anybody changing anything.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "") -> None:
        # What a library says of an address, and names and values of the source: errors end up in logs and
        # pages.
        super().__init__(visible_text(redacted(message)))


class SettingError(CdcError, ValueError):
    """A setting cannot be used as it is; ``setting`` is its dotted name, ``problem`` what to change."""

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
    """The named Spark server does not answer."""


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
    """A partition sends neither records nor heartbeats, and did not when it was asked again."""


class AccessDenied(SourceError):
    """The credentials may not read the source."""


class SourceNotFound(SourceError):
    """The instance, database or change stream does not exist."""


class StreamWatchesNothing(SourceError):
    """The change stream watches no table, so there is nothing to materialise."""


class DialectMismatch(SourceError):
    """The database speaks another dialect than the setting says."""


class RetentionExpired(SourceError):
    """The start of the read lies before the change stream's retention: records are lost to it."""


class CopyExpired(SourceError):
    """The version of the source that a copy was reading is gone: the copy has to start over."""


class KeyUnfit(SourceError):
    """A key of the source has more digits than its column in the lake: two rows could become one."""


class PartitionBoundsInvalid(SourceError):
    """The read began outside the life of its partition: a position went wrong."""


class RecordUnreadable(SourceError):
    """A record has not the shape that the source documents."""


class QueryRefused(SourceError):
    """The source refuses a query as it is written: a setting is out of its bounds, or we wrote it wrong."""


class DefinitionRefused(SourceError):
    """The source refuses to create, alter or drop a change stream, or what a change stream watches."""


class ReplicationRefused(SourceError):
    """The database, its settings or its grants do not let its changes be read."""


class SlotInUse(SourceError):
    """Another process reads the replication slot, or writes into the spool."""

    retryable = True


class SlotOutrun(SourceError):
    """The replication slot is gone or no longer has the changes that come next: they are lost to it."""


class OffsetsLost(SourceError):
    """A topic or a spool no longer has the messages that come next, or is gone: they are lost to it."""


class CaptureStopped(SourceError):
    """The engine stopped at something that it cannot convert or handle."""


class OrderError(CdcError):
    """The log cannot be put in commit order."""


class TransactionIncomplete(OrderError):
    """Not as many records arrived as the transaction announced, although all have been read."""

    def __init__(self, transaction_id: str, expected: int, seen: int) -> None:
        self.transaction_id, self.expected, self.seen = transaction_id, expected, seen
        super().__init__(
            f"Transaction `{transaction_id}` has {seen} of {expected} records at the watermark. "
            "Nothing at or after it enters the change log or is published, since the tables would not equal "
            "the source. Report it with the transaction's raw records; to go on without it, begin a new lake."
        )


class CheckFailed(OrderError):
    """Checks of the log failed; ``findings`` are what they found, by their names."""

    def __init__(self, findings: Mapping[str, str]) -> None:
        self.findings = findings
        texts = "; ".join(f"`{name}`: {summary}" for name, summary in findings.items())
        super().__init__(
            f"The log fails its checks, so nothing more of it is published: {texts}. Readers keep the newest "
            "cut. `cdc-platform check DEFS.yaml` looks at the whole log; report what it prints. The setting "
            "`check_every_s`, left empty, lets cycles go on unchecked."
        )


class LakeError(CdcError):
    """A table of the lake could not be read or committed."""


class CommitConflict(LakeError):
    """Another run committed the same cycle first; this one changed nothing."""

    retryable = True

    @classmethod
    def of(cls, table: str) -> "CommitConflict":
        """Return the error of a table to which each try of a commit was refused."""
        return cls(f"The catalog refuses each commit to `{table}` as outdated; the next cycle tries again.")


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
            "go back by a minute at most: set the clock right. If it was ahead when that commit was made, "
            f"cycles go on by themselves once that moment has come. {text}"
        )


class LakeDamaged(LakeError):
    """The catalog, or a file of a table that it names, is missing or unreadable; ``place`` is which."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        super().__init__(
            f"The lake is damaged, {place}: {problem}. Bring back the file from a copy; if the lake has been "
            "restored, bring back a copy of the catalog that is not newer than the files. Or name another "
            "lake in the setting `lake.path`: it is built from what the source still has."
        )

    @classmethod
    def missing(cls, location: str) -> "LakeDamaged":
        """Return the error of a file that the lake's metadata name, and that is gone."""
        return cls(f"file {location}", "it is not there any more")


class DiskFull(LakeError):
    """There is no room for what is written; ``text`` is what the system says of it."""

    # Its user makes room within minutes, and expiry or another program may do so earlier.
    retryable = True

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            "There is no room left for the lake, the spool of an embedded engine, or Spark's temporary files "
            "(`spark.local.dir` in the setting `spark.conf`). What is committed stays, and what was begun "
            "does not count: make room; `sync --continuous` and Dagster's sensor then go on by themselves, "
            f"anything else is started again. {text}"
        )


class LakeFormatUnknown(LakeError):
    """The lake was written in a format that this version does not know."""


class CutNotFound(LakeError):
    """The cut does not exist, or its snapshots have expired."""


class PipelineNotFound(LakeError):
    """There is no lake at the place, or the pipeline has never run there."""


class ValueUnfit(LakeError):
    """A value of the change log does not fit the type of its column; nothing of its cycle is published."""

    def __init__(self, table: str, column: str, type_name: str, value: str, key: str) -> None:
        self.table, self.column, self.type_name, self.value, self.key = table, column, type_name, value, key
        super().__init__(
            f"Table `{table}`, key {key}: the value of the column `{column}` does not fit the type "
            f"{type_name}, and its record does not say that the column had this type then. Nothing of the "
            "cycle is published. Report it with the raw record; to go on without it, begin a new lake. "
            f"Value: {value}"
        )


class ChangeUnparsed(ValueUnfit):
    """Spark does not read the keys or the new values of a change; nothing of its cycle is published."""

    def __init__(self, table: str, part: str, value: str, key: str) -> None:
        super().__init__(table, part, "JSON", value, key)
        message = (
            f"Table `{table}`, key {key}: Spark cannot read the `{part}` of a change as a JSON object. Its "
            "limits are 20,000,000 characters for a text, 50,000 for a name, 1,000 digits for a number, and "
            "1,000 levels. Nothing of the cycle is published. Report it with the raw record; to go on "
            f"without it, begin a new lake. The text begins: {value}"
        )
        self.args = (message,)


class TableNotFound(LakeError):
    """The lake has no such table of the pipeline."""


class RowNotFound(LakeError):
    """No change of such a row is in the change log."""


class QuarantinedRecordNotFound(LakeError):
    """No such record lies in quarantine."""


def as_source_error(name: str, message: str) -> SourceError:
    """Return the error that a Spark task has met, which reaches the driver as its name and text."""
    kind = globals().get(name)
    if isinstance(kind, type) and issubclass(kind, SourceError):
        return kind(message)
    return SourceUnreachable(message or name)
