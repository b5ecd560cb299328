"""Rejections with Spanner's texts: the name of a gRPC status code, and a text."""

import re
from typing import Final

from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.simulator.wire.simulator_settings import Dialect


class Refusal(Exception):
    """End of a call with this status."""

    def __init__(self, code: str, text: str) -> None:
        self.code, self.text = code, text
        super().__init__(f"{code}: {text}")


STREAMS_ALONE: Final = (
    "Change stream queries must be strong reads executed via single use transactions using the "
    "ExecuteStreamingSql API."
)
_SYNTAX_ERROR: Final = re.compile(r'near "([^"]*)": syntax error')


def start_in_past(earliest: int, start: int) -> Refusal:
    """Return the error for a start before the retention, or before the stream."""
    return Refusal(
        "OUT_OF_RANGE",
        "Specified start_timestamp is too far in the past. Please specify a start_timestamp within the "
        f"earliest read timestamp: {shown_moment(earliest)}. Received start_timestamp: "
        f"{shown_moment(start)}.",
    )


def parameter_invalid(name: str, type_name: str) -> Refusal:
    """A bound value that is not of its type."""
    return Refusal("INVALID_ARGUMENT", f"Invalid value for bind parameter {name}: Expected {type_name}.")


def syntax_error(dialect: Dialect, detail: str) -> Refusal:
    """SQL that the simulator does not answer."""
    match = _SYNTAX_ERROR.search(detail)
    if match is None:
        return not_answered(detail)
    if dialect is Dialect.GOOGLESQL:
        return Refusal("INVALID_ARGUMENT", f'Syntax error: Unexpected "{match[1]}"')
    return Refusal("INVALID_ARGUMENT", f'[ERROR] syntax error at or near "{match[1]}"')


def not_answered(detail: str) -> Refusal:
    """Return the error for SQL that Spanner can answer but the simulator cannot."""
    return Refusal("UNIMPLEMENTED", f"The simulator answers plain reads only: {detail}")


def read_only() -> Refusal:
    """Return the error for a transaction that wants to write."""
    return Refusal(
        "UNIMPLEMENTED",
        "The simulator is the only writer of its history; start it with other settings for another one.",
    )


def shown_moment(micros: int) -> str:
    """Return a timestamp in the form of the emulator's texts."""
    return to_rfc3339(micros)[:-1] + "+00:00"
