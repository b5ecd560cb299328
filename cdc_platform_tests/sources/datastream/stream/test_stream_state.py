"""The meaning of a stream's status for readers of its tables."""

import pytest

from cdc_platform.sources.datastream.stream.stream_state import (
    BackfillState,
    Concern,
    StreamError,
    StreamObject,
    StreamState,
    StreamStatus,
)

WHOLE = StreamObject("bank.accounts", BackfillState.COMPLETED)
ERROR = StreamError("MYSQL_CONNECTION", "No route to the host")


def status(
    state: StreamState, errors: tuple[StreamError, ...] = (), objects: tuple[StreamObject, ...] = (WHOLE,)
) -> StreamStatus:
    """Return the status of a stream of the bank."""
    return StreamStatus("projects/p/locations/l/streams/s", "Bank", state, errors, objects)


CONCERNS = {
    StreamState.NOT_STARTED: Concern.WARNING,
    StreamState.STARTING: Concern.WARNING,
    StreamState.RUNNING: Concern.NONE,
    StreamState.DRAINING: Concern.WARNING,
    StreamState.PAUSED: Concern.WARNING,
    StreamState.MAINTENANCE: Concern.WARNING,
    StreamState.FAILED: Concern.FAILURE,
    StreamState.FAILED_PERMANENTLY: Concern.FAILURE,
    StreamState.UNKNOWN: Concern.WARNING,
}


@pytest.mark.parametrize("state", StreamState)
def test_each_state_has_a_concern_and_advice(state: StreamState) -> None:
    """Every state but running has a severity, a description and an action."""
    actual = status(state)
    assert CONCERNS[state] == actual.concern
    assert f"`{actual.name}` is {state.value.replace('_', ' ')}. {actual.advice}." in actual.summary


def test_no_two_states_have_the_same_advice() -> None:
    """Anyone who reads the advice alone knows which state it is about."""
    assert len(StreamState) == len({status(state).advice for state in StreamState})


@pytest.mark.parametrize(
    ("backfill", "is_troubled"),
    [
        (BackfillState.NOT_STARTED, False),
        (BackfillState.PENDING, False),
        (BackfillState.ACTIVE, False),
        (BackfillState.STOPPED, True),
        (BackfillState.FAILED, True),
        (BackfillState.COMPLETED, False),
        (BackfillState.UNSUPPORTED, True),
        (BackfillState.UNKNOWN, False),
    ],
)
def test_a_running_stream_whose_backfill_ended_early_is_a_warning(
    backfill: BackfillState, *, is_troubled: bool
) -> None:
    """Rows of that object are missing, though the stream runs."""
    actual = status(StreamState.RUNNING, objects=(WHOLE, StreamObject("bank.cards", backfill)))
    assert (Concern.WARNING if is_troubled else Concern.NONE) == actual.concern
    assert is_troubled == (f"bank.cards (backfill {backfill.value}" in actual.summary)


def test_errors_make_a_running_stream_a_warning() -> None:
    """An error of the stream, or of one of its objects, is reported with its text."""
    of_stream = status(StreamState.RUNNING, errors=(ERROR,))
    of_object = status(
        StreamState.RUNNING, objects=(StreamObject("bank.cards", BackfillState.ACTIVE, (ERROR,)),)
    )
    assert (of_stream.concern, of_object.concern) == (Concern.WARNING, Concern.WARNING)
    assert "Errors (1): MYSQL_CONNECTION: No route to the host." in of_stream.summary
    summary = "Objects in trouble (1): bank.cards (backfill active, MYSQL_CONNECTION: No route to the host)."
    assert summary in of_object.summary


def test_a_summary_of_many_errors_stays_short() -> None:
    """The first ones are named, the others counted."""
    actual = status(StreamState.FAILED, errors=tuple(StreamError("E", str(number)) for number in range(9)))
    assert actual.summary.endswith("Errors (9): E: 0; E: 1; E: 2; and 6 more.")


def test_an_error_without_a_text_is_reported_as_such() -> None:
    """A line never ends in nothing."""
    assert StreamError("", "").text == "an error without a text"
