"""The state of a stream of Datastream, its errors and its objects; and whether that is a concern."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class StreamState(StrEnum):
    """State of a stream, named as in Datastream's API."""

    NOT_STARTED = "not_started"
    """Nobody has started the stream, or its validation failed at the start: no event was ever written."""
    STARTING = "starting"
    """Datastream validates the stream; events come when that is done."""
    RUNNING = "running"
    """Datastream reads the source: when no events come, the source has no changes."""
    DRAINING = "draining"
    """Somebody has paused the stream: what Datastream had read is still written, and nothing new is read."""
    PAUSED = "paused"
    """Nothing is read. The source's log may expire meanwhile, and then changes are lost."""
    MAINTENANCE = "maintenance"
    """Google works on the stream, and its definition cannot be changed meanwhile."""
    FAILED = "failed"
    """Nothing is written until the cause is removed; then Datastream goes on by itself."""
    FAILED_PERMANENTLY = "failed_permanently"
    """Nothing is written, and the stream does not go on by itself: somebody has to recover it."""
    UNKNOWN = "unknown"
    """Datastream names no state, or one that this version does not know."""


class BackfillState(StrEnum):
    """State of the latest backfill of an object, named as in Datastream's API."""

    NOT_STARTED = "not_started"
    """The object was never backfilled: by the stream's settings, or until somebody asks for it."""
    PENDING = "pending"
    """It waits for resources: rows older than the stream are still to come."""
    ACTIVE = "active"
    """It is going on: rows older than the stream are still to come."""
    STOPPED = "stopped"
    """Somebody stopped it: older rows are missing, and the next one begins from the start."""
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
    """The tables stand still, or miss something, as somebody wanted or will see to."""
    FAILURE = "failure"
    """The tables stand still, and that will not pass without anybody removing the cause."""


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
    StreamState.DRAINING: "Somebody has paused it: what it had read is still written, and then the tables "
    "stand still until it is resumed",
    StreamState.PAUSED: "The tables stand still: resume it, before the source deletes the log that "
    "Datastream has not read yet",
    StreamState.MAINTENANCE: "Google works on it: wait, and see Google Cloud's service health if it stays so",
    StreamState.FAILED: "The tables stand still: remove the cause that the errors name, and Datastream goes "
    "on by itself",
    StreamState.FAILED_PERMANENTLY: "The tables stand still, and it does not go on by itself: remove the "
    "cause that the errors name, and recover the stream. If it has to skip part of the source's log, "
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
    """An error that Datastream reports; `uuid` finds it in Google's logs, `details` are in order of name."""

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
    are those of the object, and after them those of its latest backfill.
    """

    name: str
    backfill: BackfillState
    errors: tuple[StreamError, ...] = ()

    @property
    def is_troubled(self) -> bool:
        """Whether rows of it may be missing."""
        return bool(self.errors) or self.backfill in INCOMPLETE_BACKFILLS


@dataclass(frozen=True)
class StreamStatus:
    """A stream at the moment when it was asked; `name` is its full name, objects are in order of name."""

    name: str
    display_name: str
    state: StreamState
    errors: tuple[StreamError, ...] = ()
    objects: tuple[StreamObject, ...] = ()

    @property
    def troubled_objects(self) -> tuple[StreamObject, ...]:
        """Objects of which rows may be missing."""
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
        """Meaning of the status for the tables, and what to do."""
        if self.state is not StreamState.RUNNING:
            return _ADVICE[self.state]
        return _RUNNING_ADVICE if self.concern is Concern.NONE else _TROUBLE_ADVICE

    @property
    def summary(self) -> str:
        """State, advice, and the first of the errors, as a text for the operator."""
        state = self.state.value.replace("_", " ")
        sentences = [f"The stream `{self.name}` is {state}. {self.advice}."]
        sentences += _first("Errors", [error.text for error in self.errors])
        sentences += _first(
            "Objects in trouble", [_trouble(stream_object) for stream_object in self.troubled_objects]
        )
        return " ".join(sentences)


SUMMARISED: Final = 3
"""Most errors and objects that a summary names."""


def _first(title: str, texts: list[str]) -> Iterable[str]:
    if not texts:
        return
    more = f"; and {len(texts) - SUMMARISED} more" if len(texts) > SUMMARISED else ""
    yield f"{title} ({len(texts)}): {'; '.join(texts[:SUMMARISED])}{more}."


def _trouble(stream_object: StreamObject) -> str:
    error = f", {stream_object.errors[0].text}" if stream_object.errors else ""
    return f"{stream_object.name} (backfill {stream_object.backfill.value.replace('_', ' ')}{error})"
