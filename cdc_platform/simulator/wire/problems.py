"""Refusals in Spanner's words: a gRPC status code by its name, and a text."""

import re
from collections.abc import Iterable
from typing import Final

from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.simulator.wire.simulator_settings import Dialect


class Refusal(Exception):
    """The call ends with this status."""

    def __init__(self, code: str, text: str) -> None:
        self.code, self.text = code, text
        super().__init__(f"{code}: {text}")


_NEAR: Final = re.compile(r'near "([^"]*)": syntax error')
_MULTI_USE: Final = (
    "Change stream queries must be strong reads executed via single use transactions using the "
    "ExecuteStreamingSql API."
)


def start_is_null() -> Refusal:
    """A query without a start."""
    return Refusal("INVALID_ARGUMENT", "start_timestamp must not be null.")


def heartbeat_is_null() -> Refusal:
    """A query without an interval of heartbeats."""
    return Refusal("INVALID_ARGUMENT", "heartbeat_milliseconds must not be null.")


def start_in_future(earliest: int, latest: int, start: int) -> Refusal:
    """A start more than ten minutes ahead."""
    return Refusal(
        "OUT_OF_RANGE",
        "Specified start_timestamp is too far in the future. Please specify a start_timestamp within the "
        f"earliest read timestamp: {_text(earliest)}, and the current maximum start timestamp: "
        f"{_text(latest)}. Received start_timestamp: {_text(start)}.",
    )


def start_in_past(earliest: int, start: int) -> Refusal:
    """A start before the retention, or before the stream."""
    return Refusal(
        "OUT_OF_RANGE",
        "Specified start_timestamp is too far in the past. Please specify a start_timestamp within the "
        f"earliest read timestamp: {_text(earliest)}. Received start_timestamp: {_text(start)}.",
    )


def end_before_start(start: int, end: int) -> Refusal:
    """An end before the start."""
    return Refusal(
        "INVALID_ARGUMENT",
        "If end_timestamp is specified, start_timestamp must be <= end_timestamp. Received start_timestamp: "
        f"{_text(start)}, end_timestamp: {_text(end)}.",
    )


def heartbeat_out_of_range(lowest: int, highest: int, received: int) -> Refusal:
    """An interval that is too short or too long."""
    return Refusal(
        "OUT_OF_RANGE",
        f"heartbeat_milliseconds must be within min {lowest} and max {highest}. Received "
        f"heartbeat_milliseconds: {received}.",
    )


def read_options_given() -> Refusal:
    """The argument that is reserved."""
    return Refusal("UNIMPLEMENTED", "read_options must be null.")


def argument_is_expression(function: str, position: int) -> Refusal:
    """An argument that is neither a literal nor a parameter."""
    return Refusal(
        "INVALID_ARGUMENT",
        f"Invalid argument of change stream TVF {function}. Argument {position} is not a literal or "
        "parameter. Implicit type conversions are not supported.",
    )


def argument_of_other_type(function: str, name: str, expected: str, actual: str) -> Refusal:
    """An argument whose type is not the one of the signature."""
    return Refusal(
        "INVALID_ARGUMENT",
        f"Invalid argument of change stream TVF {function}. {name} must be {expected}, but is {actual}. "
        "Implicit type conversions are not supported.",
    )


def too_many_arguments(function: str, most: int, count: int) -> Refusal:
    """More arguments than the signature has."""
    return Refusal(
        "INVALID_ARGUMENT",
        f"No matching signature for {function}: Signature accepts at most {most} arguments, found {count} "
        "arguments",
    )


def argument_unknown(function: str, name: str, names: Iterable[str]) -> Refusal:
    """An argument with a name that the signature has not."""
    return Refusal(
        "INVALID_ARGUMENT",
        f"Named argument {name} not found in signature for call to {function}; it has {', '.join(names)}",
    )


def argument_twice(function: str, name: str) -> Refusal:
    """An argument that is given more than once."""
    return Refusal("INVALID_ARGUMENT", f"Duplicate named argument {name} found in call to {function}")


def parameter_missing(name: str) -> Refusal:
    """A parameter without a bound value."""
    return Refusal("INVALID_ARGUMENT", f"No parameter found for binding: {name}")


def parameter_invalid(name: str, type_name: str) -> Refusal:
    """A bound value that is none of its type."""
    return Refusal("INVALID_ARGUMENT", f"Invalid value for bind parameter {name}: Expected {type_name}.")


def token_unknown(token: str) -> Refusal:
    """A token that no partition of the stream has."""
    return Refusal(
        "INVALID_ARGUMENT",
        "Specified partition_token is invalid, as it does not belong to the Change Stream associated with "
        f"the TVF. Received partition_token: {token}.",
    )


def token_of_another_placement(token: str) -> Refusal:
    """A token that the read function of another placement has; only a part of the text is Spanner's."""
    return Refusal("INVALID_ARGUMENT", f"Partition token {token} does not belong to the placement TVF.")


def start_outside_partition(first: int, last: int, start: int) -> Refusal:
    """A start before or after the life of the partition."""
    return Refusal(
        "OUT_OF_RANGE",
        "Specified start_timestamp is invalid for the partition. Please specify a start_timestamp within "
        f"{_text(first)} and {_text(last)}. Received start_timestamp: {_text(start)}.",
    )


def partition_expired() -> Refusal:
    """A partition that ended before the retention begins."""
    return Refusal(
        "OUT_OF_RANGE",
        "This partition is no longer valid. All Change Stream records associated with this partition have "
        "expired and have been deleted, as specified by the Change Stream retention period.",
    )


def multi_use() -> Refusal:
    """A change stream query that is not a strong single read."""
    return Refusal(
        "INVALID_ARGUMENT",
        f"Change stream queries are not supported for multi use transactions. {_MULTI_USE}",
    )


def not_streaming() -> Refusal:
    """A change stream query by the unary call."""
    return Refusal(
        "INVALID_ARGUMENT", f"Change stream queries are not supported for the ExecuteSql API. {_MULTI_USE}"
    )


def plan() -> Refusal:
    """A change stream query of which only the plan is wanted."""
    return Refusal("UNIMPLEMENTED", "Change stream queries are not supported in query mode PLAN.")


def combined(dialect: Dialect, function: str) -> Refusal:
    """A read function that is not the whole query."""
    if dialect is Dialect.GOOGLESQL:
        example = f"SELECT ChangeRecord FROM {function}(<args>)"
    else:
        example = f'select * from "spanner"."{function}"(<args>)'
    return Refusal(
        "UNIMPLEMENTED",
        "Change stream TVF must not be combined with any other SQL statements. Change stream records should "
        f"be read using `{example}`.",
    )


def function_not_found(dialect: Dialect, function: str, position: int) -> Refusal:
    """A read function of no change stream."""
    if dialect is Dialect.GOOGLESQL:
        text = f"Table-valued function not found: {function} [at 1:{position}]"
        return Refusal("INVALID_ARGUMENT", text)
    arguments = "timestamp with time zone, timestamp with time zone, text, bigint, unknown"
    return Refusal("NOT_FOUND", f"[ERROR] function spanner.{function}({arguments}) does not exist")


def table_not_found(dialect: Dialect, name: str) -> Refusal:
    """A table that is not there at the read timestamp."""
    if dialect is Dialect.GOOGLESQL:
        return Refusal("INVALID_ARGUMENT", f"Table not found: {name}")
    return Refusal("NOT_FOUND", f'relation "{name}" does not exist')


def column_not_found(dialect: Dialect, name: str) -> Refusal:
    """A column that is not there at the read timestamp."""
    if dialect is Dialect.GOOGLESQL:
        return Refusal("INVALID_ARGUMENT", f"Unrecognized name: {name}")
    return Refusal("INVALID_ARGUMENT", f'[ERROR] column "{name}" does not exist')


def syntax_error(dialect: Dialect, detail: str) -> Refusal:
    """SQL that the simulator does not answer."""
    near = _NEAR.search(detail)
    if near is None:
        return not_answered(detail)
    if dialect is Dialect.GOOGLESQL:
        return Refusal("INVALID_ARGUMENT", f'Syntax error: Unexpected "{near[1]}"')
    return Refusal("INVALID_ARGUMENT", f'[ERROR] syntax error at or near "{near[1]}"')


def not_answered(detail: str) -> Refusal:
    """SQL that Spanner answers and the simulator does not."""
    return Refusal("UNIMPLEMENTED", f"The simulator answers plain reads only: {detail}")


def version_expired(micros: int) -> Refusal:
    """A read of rows of which the versions are gone."""
    return Refusal(
        "FAILED_PRECONDITION",
        f"Read-only transaction timestamp {_text(micros)} has exceeded the maximum timestamp staleness",
    )


def write_in_single_use() -> Refusal:
    """A write by a read."""
    return Refusal(
        "INVALID_ARGUMENT", "DML statements may not be performed in single-use transactions, to avoid replay."
    )


def read_only() -> Refusal:
    """A transaction that wants to write."""
    return Refusal(
        "UNIMPLEMENTED",
        "The simulator is the only writer of its history; start it with other settings for another one.",
    )


def end_is_null() -> Refusal:
    """A query without an end, of a stream with mutable key ranges."""
    return Refusal("INVALID_ARGUMENT", "end_timestamp must not be null.")


def end_too_late(start: int, latest: int, end: int) -> Refusal:
    """An end too long after the start, of a stream with mutable key ranges."""
    return Refusal(
        "OUT_OF_RANGE",
        f"Specified end_timestamp is too far after start_timestamp: {_text(start)}. Please specify an "
        f"end_timestamp at or before {_text(latest)}. Received end_timestamp: {_text(end)}.",
    )


def database_not_found(name: str) -> Refusal:
    """Another database than the simulated one."""
    return Refusal("NOT_FOUND", f"Database not found: {name}")


def session_not_found(name: str) -> Refusal:
    """A session that was never made, or is deleted."""
    return Refusal("NOT_FOUND", f"Session not found: {name}")


def _text(micros: int) -> str:
    """Return a timestamp as the emulator writes it in its texts."""
    return to_rfc3339(micros)[:-1] + "+00:00"
