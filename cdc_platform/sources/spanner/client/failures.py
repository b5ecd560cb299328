"""Errors of Spanner: which are transient, and what to do about the others."""

import re
from typing import Final

from cdc_platform.errors import (
    AccessDenied,
    DefinitionRefused,
    PartitionBoundsInvalid,
    QueryRefused,
    RetentionExpired,
    SettingError,
    SourceError,
    SourceNotFound,
    SourceUnreachable,
)
from cdc_platform.model.base.timestamps import MICROS_PER_S, from_rfc3339, to_rfc3339
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.sources.statuses import StatusMeaning, find_meaning

_RETENTION_ADVICE: Final = (
    "Records of that time are lost to the stream: its `retention_period` is over, or it was dropped and "
    "created again since. Nothing is skipped by itself. Either begin a new lake folder without "
    "`start_timestamp`: the tables are copied as they are now, and the stream takes over; or begin a new "
    "lake folder with `start_timestamp` at a time that the stream still keeps. A longer `retention_period` "
    "keeps records longer, and a stream that is altered instead keeps them at all"
)
_BOUNDS_ADVICE: Final = (
    "The position of the partition is outside its life. Was the stream dropped and created again? Then "
    "begin a new lake folder; otherwise keep the lake as it is and report it"
)
_LOST_ADVICE: Final = (
    "Create it again, and begin a new lake folder: what was committed in between is lost to the stream"
)
_NAMES_ADVICE: Final = (
    "Check `project`, `instance`, `database` and `change_stream`; streams are listed by "
    f"SELECT * FROM information_schema.change_streams. Or was the stream dropped? {_LOST_ADVICE}"
)
_FUNCTION_ADVICE: Final = (
    f"{_NAMES_ADVICE}. Or has the stream `per_placement_tvf`, so that each placement has a read function of "
    "its own? Then let this account see its options in information_schema.change_stream_options"
)
_LONG_ADVICE: Final = (
    "A query of a stream with partition_mode = 'MUTABLE_KEY_RANGE' ends half an hour after its start at "
    "most, and the platform asks for more only where it does not know the mode: let this account see the "
    "stream in information_schema.change_stream_options"
)
_ACCESS_ADVICE: Final = (
    "Give the account of this process roles/spanner.databaseReader, or with `database_role` SELECT on "
    "the change stream and EXECUTE on its read function"
)
_UNREACHABLE_ADVICE: Final = (
    "Check the network, and `emulator_host` if one is set; the next cycle resumes where this one stopped"
)

_DROPPED_ADVICE: Final = f"The stream was dropped, and its records with it. {_LOST_ADVICE}"
_CASE_ADVICE: Final = (
    "Names in PostgreSQL count upper and lower case: write `change_stream` exactly as "
    "SELECT change_stream_name FROM information_schema.change_streams lists it. The "
    "read function depends on the stream's partition_mode: can this account see it in "
    f"information_schema.change_stream_options? Or was the stream dropped? {_LOST_ADVICE}"
)
_HEARTBEAT_ADVICE: Final = "Set `heartbeat_ms` to a number within the limits that Spanner names"
_OURS_ADVICE: Final = "The platform wrote a query that Spanner rejects: update the platform, or report it"

_REFUSED_ADVICE: Final = "Spanner refused the read"

_EARLIEST: Final = re.compile(r"earliest read timestamp: ([0-9T:.+-]+Z?)")
_CLOCK_SLACK_S: Final = 60
"""Tolerance between the earliest start in Spanner's error and the one implied by the retention period."""

MEANINGS: Final = (
    StatusMeaning("OUT_OF_RANGE", "too far in the past", RetentionExpired, _RETENTION_ADVICE),
    StatusMeaning("OUT_OF_RANGE", "no longer valid", RetentionExpired, _RETENTION_ADVICE),
    StatusMeaning("OUT_OF_RANGE", "for the partition", PartitionBoundsInvalid, _BOUNDS_ADVICE),
    StatusMeaning(
        "OUT_OF_RANGE",
        "too far in the future",
        PartitionBoundsInvalid,
        "Set `start_timestamp` to the present or earlier",
    ),
    StatusMeaning("OUT_OF_RANGE", "heartbeat_milliseconds", QueryRefused, _HEARTBEAT_ADVICE),
    StatusMeaning("OUT_OF_RANGE", "end_timestamp", QueryRefused, _LONG_ADVICE),
    StatusMeaning("INVALID_ARGUMENT", "does not belong to", PartitionBoundsInvalid, _BOUNDS_ADVICE),
    StatusMeaning("INVALID_ARGUMENT", "function not found", SourceNotFound, _FUNCTION_ADVICE),
    StatusMeaning(
        "INVALID_ARGUMENT",
        "start_timestamp must be <= end_timestamp",
        QueryRefused,
        f"A window ends before it begins. {_OURS_ADVICE}",
    ),
    StatusMeaning(
        "INVALID_ARGUMENT", "must not be null", QueryRefused, f"An argument is missing. {_OURS_ADVICE}"
    ),
    StatusMeaning("INVALID_ARGUMENT", "not a literal or parameter", QueryRefused, _OURS_ADVICE),
    StatusMeaning("INVALID_ARGUMENT", "not supported for", QueryRefused, _OURS_ADVICE),
    StatusMeaning("UNIMPLEMENTED", "", QueryRefused, _OURS_ADVICE),
    StatusMeaning("FAILED_PRECONDITION", "staleness", RetentionExpired, "Read at a later timestamp"),
    StatusMeaning(
        "FAILED_PRECONDITION",
        "Invalid retention_period",
        DefinitionRefused,
        "Give the stream a `retention_period` within the limits that Spanner names, long enough for the "
        "longest time that the pipeline may stand still",
    ),
    StatusMeaning(
        "FAILED_PRECONDITION",
        "maximum number of Change Streams",
        DefinitionRefused,
        "Drop a change stream of the database that nobody reads, or name an existing one in `change_stream`",
    ),
    StatusMeaning(
        "FAILED_PRECONDITION",
        "Change Streams tracking the same",
        DefinitionRefused,
        "Let one of the streams that Spanner names watch less, or name one of them in `change_stream`",
    ),
    StatusMeaning(
        "FAILED_PRECONDITION",
        "tracked by",
        DefinitionRefused,
        "Alter the change stream so that it no longer names the table or column, and drop it then; the "
        "lake keeps what it has",
    ),
    # A session may expire; the client creates a new one for the next attempt.
    StatusMeaning("NOT_FOUND", "Session not found", SourceUnreachable, _UNREACHABLE_ADVICE),
    StatusMeaning("NOT_FOUND", "Change Stream not found", SourceNotFound, _DROPPED_ADVICE),
    StatusMeaning("NOT_FOUND", "function spanner.read_json_", SourceNotFound, _CASE_ADVICE),
    StatusMeaning("NOT_FOUND", "function spanner.read_proto_bytes_", SourceNotFound, _FUNCTION_ADVICE),
    StatusMeaning("NOT_FOUND", "", SourceNotFound, _NAMES_ADVICE),
    StatusMeaning("PERMISSION_DENIED", "", AccessDenied, _ACCESS_ADVICE),
    StatusMeaning("UNAUTHENTICATED", "", AccessDenied, _ACCESS_ADVICE),
)
"""The first matching row applies; the texts are short because Spanner does not guarantee them."""


def to_source_error(settings: SpannerSettings, code: str, text: str) -> SourceError:
    """Return the platform's error for a gRPC status; its message names the stream and the remedy."""
    meaning = find_meaning(MEANINGS, code, text, transient=_UNREACHABLE_ADVICE, permanent=_REFUSED_ADVICE)
    answer = f"Spanner said {code}: {text}"
    return meaning.error(f"Cannot read {settings.title}. {meaning.advice}. {answer}")


def refused_start(
    settings: SpannerSettings, refusal: SourceError, start_micros: int, now_micros: int, retention_s: int
) -> SourceError | SettingError:
    """Return the error for a `start_timestamp` before the retention period, or before the change stream.

    Args:
        settings: the change stream.
        refusal: Spanner's error for the start.
        start_micros: the start.
        now_micros: the time of the source.
        retention_s: time for which the stream keeps records.
    """
    kept_micros = now_micros - retention_s * MICROS_PER_S
    begins_micros = _earliest_micros(str(refusal))
    start = to_rfc3339(start_micros)
    advice = "or leave it out: the tables are then copied as they are now, and the stream takes over"
    # The rest of its advice is for a pipeline that has a lake.
    answer = f"Spanner said{str(refusal).rpartition('Spanner said')[2]}"
    if max(start_micros, (begins_micros or 0) - _CLOCK_SLACK_S * MICROS_PER_S) < kept_micros:
        return RetentionExpired(
            f"`start_timestamp` is {start}, but the {settings.title} keeps records for {retention_s} s only. "
            f"Set it to a time after {to_rfc3339(kept_micros)}, {advice}. {answer}"
        )
    begins = f"at {to_rfc3339(begins_micros)}" if begins_micros is not None else "later"
    return SettingError(
        "start_timestamp",
        f"lies before the change stream existed: it is {start}, and the stream's records begin {begins}, "
        "although its `retention_period` reaches back further (unless that was shorter until recently). Set "
        f"it to a time since then, {advice}. {answer}",
    )


def _earliest_micros(answer: str) -> int | None:
    """Return the earliest start that Spanner's text names, else None."""
    match = _EARLIEST.search(answer)
    try:
        return from_rfc3339(match.group(1).rstrip(".")) if match else None
    except ValueError:
        return None
