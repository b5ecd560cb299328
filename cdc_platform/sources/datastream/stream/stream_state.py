"""The state of a Datastream stream, its errors and its objects, and their severity."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class StreamState(StrEnum):
    """State of a stream, named as in Datastream's API."""

    NOT_STARTED = "not_started"
    """The stream was never started, or its validation failed at the start: it has never written an event."""
    STARTING = "starting"
    """Datastream validates the stream; events come after that."""
    RUNNING = "running"
    """Datastream reads the source: if no events come, the source has no changes."""
    DRAINING = "draining"
    """The stream was paused: Datastream still writes what it has read, but reads nothing new."""
    PAUSED = "paused"
    """Nothing is read. The source's log may expire in that time, and then changes are lost."""
    MAINTENANCE = "maintenance"
    """Google works on the stream, whose definition cannot be changed in that time."""
    FAILED = "failed"
    """Nothing is written until the cause is removed; then Datastream continues by itself."""
    FAILED_PERMANENTLY = "failed_permanently"
    """Nothing is written, and the stream does not continue by itself: it has to be recovered."""
    UNKNOWN = "unknown"
    """Datastream reports no state, or one that this version does not know."""


class BackfillState(StrEnum):
    """State of the latest backfill of an object, named as in Datastream's API."""

    NOT_STARTED = "not_started"
    """The object was never backfilled, because of the stream's settings or for lack of a request."""
    PENDING = "pending"
    """It waits for resources: rows older than the stream are still to come."""
    ACTIVE = "active"
    """It is running: rows older than the stream are still to come."""
    STOPPED = "stopped"
    """It was stopped: older rows are missing, and the next one begins from the start."""
    FAILED = "failed"
    """An error ended it: older rows are missing."""
    COMPLETED = "completed"
    """All rows were read."""
    UNSUPPORTED = "unsupported"
    """The object's structure cannot be backfilled: older rows do not come."""
    UNKNOWN = "unknown"
    """The object has no backfill, or one in a state that this version does not know."""


class Concern(StrEnum):
    """Severity of a stream's status for readers of its tables."""

    NONE = "none"
    """The tables follow the source."""
    WARNING = "warning"
    """The tables do not advance, or lack something, but this is intended or already handled."""
    FAILURE = "failure"
    """The tables do not advance until the cause is removed."""


INCOMPLETE_BACKFILLS: Final = frozenset(
    {BackfillState.STOPPED, BackfillState.FAILED, BackfillState.UNSUPPORTED}
)
"""States of a backfill that has ended before all rows were read."""

_FAILURES: Final = frozenset({StreamState.FAILED, StreamState.FAILED_PERMANENTLY})

_ADVICE: Final = {
    StreamState.NOT_STARTED: "It has never written an event: start it. If it was started, its validation "
    "failed: correct what Datastream's console shows, and start it again",
    StreamState.STARTING: "Datastream validates it, and no events come yet: wait. If it stays so for more "
    "than some minutes, look at the stream in Datastream's console",
    StreamState.DRAINING: "It was paused: Datastream still writes what it has read, and then the tables "
    "do not advance until it is resumed",
    StreamState.PAUSED: "The tables do not advance: resume it, before the source deletes the log that "
    "Datastream has not read yet",
    StreamState.MAINTENANCE: "Google works on it: wait, and see Google Cloud's service health if it stays so",
    StreamState.FAILED: "The tables do not advance: remove the cause that the errors name, and Datastream "
    "continues by itself",
    StreamState.FAILED_PERMANENTLY: "The tables do not advance, and it does not continue by itself: remove "
    "the cause that the errors name, and recover the stream. If it has to skip part of the source's log, "
    "backfill its objects afterwards, since the changes in that part are lost",
    StreamState.UNKNOWN: "Datastream names no state that this version knows: look at the stream in "
    "Datastream's console, and update the platform",
}
_RUNNING_ADVICE: Final = "When no events come, the source has no changes"
_TROUBLE_ADVICE: Final = (
    "Events of the other objects come, but rows or changes may be missing: remove the causes that the "
    "errors name, and start the backfill again of objects whose backfill did not complete"
)


@dataclass(frozen=True)
class StreamError:
    """An error from Datastream; `uuid` identifies it in Google's logs, `details` are sorted by name."""

    reason: str
    message: str
    uuid: str = ""
    at_micros: int | None = None
    details: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """The error in one line."""
        return ": ".join(part for part in (self.reason, self.message) if part) or "an error without a text"


@dataclass(frozen=True)
class StreamObject:
    """A table or collection that the stream has discovered.

    ``name`` is the source's name, as SCHEMA.TABLE, DATABASE.TABLE, OBJECT or DATABASE.COLLECTION. ``errors``
    are those of the object, followed by those of its latest backfill.
    """

    name: str
    backfill: BackfillState
    errors: tuple[StreamError, ...] = ()

    @property
    def is_troubled(self) -> bool:
        """Whether its rows may be incomplete."""
        return bool(self.errors) or self.backfill in INCOMPLETE_BACKFILLS


@dataclass(frozen=True)
class StreamStatus:
    """A stream at the time of the request; `name` is its full name, objects are sorted by name."""

    name: str
    display_name: str
    state: StreamState
    errors: tuple[StreamError, ...] = ()
    objects: tuple[StreamObject, ...] = ()

    @property
    def troubled_objects(self) -> tuple[StreamObject, ...]:
        """Objects whose rows may be incomplete."""
        return tuple(stream_object for stream_object in self.objects if stream_object.is_troubled)

    @property
    def concern(self) -> Concern:
        """Severity of the status for readers of the tables."""
        if self.state in _FAILURES:
            return Concern.FAILURE
        is_whole = self.state is StreamState.RUNNING and not self.errors and not self.troubled_objects
        return Concern.NONE if is_whole else Concern.WARNING

    @property
    def advice(self) -> str:
        """Meaning of the status for the tables, and the remedy."""
        if self.state is not StreamState.RUNNING:
            return _ADVICE[self.state]
        return _RUNNING_ADVICE if self.concern is Concern.NONE else _TROUBLE_ADVICE

    @property
    def summary(self) -> str:
        """State, advice, and the first errors, as a text for the operator."""
        state = self.state.value.replace("_", " ")
        sentences = [f"The stream `{self.name}` is {state}. {self.advice}."]
        sentences += _first("Errors", [error.text for error in self.errors])
        sentences += _first(
            "Objects in trouble", [_trouble(stream_object) for stream_object in self.troubled_objects]
        )
        return " ".join(sentences)


SUMMARISED: Final = 3
"""Maximum number of errors and objects in a summary."""


def _first(title: str, texts: list[str]) -> Iterable[str]:
    if not texts:
        return
    more = f"; and {len(texts) - SUMMARISED} more" if len(texts) > SUMMARISED else ""
    yield f"{title} ({len(texts)}): {'; '.join(texts[:SUMMARISED])}{more}."


def _trouble(stream_object: StreamObject) -> str:
    error = f", {stream_object.errors[0].text}" if stream_object.errors else ""
    return f"{stream_object.name} (backfill {stream_object.backfill.value.replace('_', ' ')}{error})"
