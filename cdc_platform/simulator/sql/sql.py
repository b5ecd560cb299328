"""Classification of SQL texts for the simulator, with their arguments inserted."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cdc_platform.model.base.timestamps import from_rfc3339, is_between_micros
from cdc_platform.simulator.sql.parameters import Parameters, find_parameter
from cdc_platform.simulator.sql.tokens import (
    Token,
    TokenKind,
    at,
    closing,
    end_of_casts,
    split_list,
    tokens_of,
)
from cdc_platform.simulator.stream.stream import StreamQuery
from cdc_platform.simulator.wire.problems import Refusal
from cdc_platform.simulator.wire.simulator_settings import Dialect, PartitionMode, SimulatorSettings

_ARGUMENTS: Final = {
    "start_timestamp": "TIMESTAMP",
    "end_timestamp": "TIMESTAMP",
    "partition_token": "STRING",
    "heartbeat_milliseconds": "INT64",
    "read_options": "ARRAY",
}
"""The read functions' arguments in order, and the codes of their types."""
_INT64: Final = re.compile(r"-?[0-9]{1,19}")
_FUNCTIONS: Final = {
    Dialect.GOOGLESQL: re.compile(r"(?P<form>READ_)(?P<stream>\w+)", re.IGNORECASE),
    Dialect.POSTGRESQL: re.compile(r"(?P<form>read_json_|read_proto_bytes_)(?P<stream>\w+)", re.IGNORECASE),
}
_FORMS: Final = {
    # The names of PostgreSQL's read functions contain the form of the records.
    PartitionMode.IMMUTABLE_KEY_RANGE: "read_json_",
    PartitionMode.MUTABLE_KEY_RANGE: "read_proto_bytes_",
}


@dataclass(frozen=True)
class StreamCall:
    """A query of a change stream's read function."""

    function: str
    query: StreamQuery


@dataclass(frozen=True)
class Argument:
    """The value of an argument, and the code of its type if that is certain."""

    value: Any
    type_name: str = ""


def find_stream_call(
    sql: str,
    parameters: Parameters,
    settings: SimulatorSettings,
    types: Mapping[str, str] | None = None,
    placements: Sequence[str] = (),
) -> StreamCall | None:
    """Return the call of a read function; None if there is none.

    `types` are the type codes of the parameters that declare one; each of the `placements` has a function.

    Raises:
        Refusal: there is a call, but Spanner would reject it.
    """
    dialect = settings.dialect
    tokens = tokens_of(sql, dialect)
    first_call = next(_calls(tokens, dialect), None)
    if first_call is None:
        return None
    place, call = first_call
    is_googlesql = dialect is Dialect.GOOGLESQL
    function = f"{'READ_' if is_googlesql else call['form']}{call['stream']}"
    name_in_query = function if is_googlesql else f"{call['form'].lower()}{call['stream']}"
    functions = {name: read_function(settings, name) for name in placements or ("",)}
    placement = next((name for name in functions if _is_equal(name_in_query, functions[name], dialect)), None)
    if placement is None:
        raise _function_not_found(dialect, function, tokens[place].position + 1)
    end = closing(tokens, place + 1)
    if end != len(tokens) - 1 or not _selects_all(tokens[: place + 1], dialect):
        raise _combined_query(dialect, function)
    bound = _bind(tokens[place + 2 : end], function)
    arguments = {
        name: _argument(tokens, parameters, types or {}, function, position)
        for position, (name, tokens) in enumerate(bound.items())
    }
    for name, argument in arguments.items():
        _check_type(function, name, argument)
    values = {name: argument.value for name, argument in arguments.items()}
    return StreamCall(function, replace(_query(values), placement=placement))


def _combined_query(dialect: Dialect, function: str) -> Refusal:
    """Return the refusal of a query that does more than read the function."""
    example = (
        f"SELECT ChangeRecord FROM {function}(<args>)"
        if dialect is Dialect.GOOGLESQL
        else f'select * from "spanner"."{function}"(<args>)'
    )
    return Refusal(
        "UNIMPLEMENTED",
        "Change stream TVF must not be combined with any other SQL statements. Change stream records "
        f"should be read using `{example}`.",
    )


def read_function(settings: SimulatorSettings, placement: str = "") -> str:
    """Return the name of the change stream's read function: the only one, or that of a placement."""
    form = "READ_" if settings.dialect is Dialect.GOOGLESQL else _FORMS[settings.partition_mode]
    return "_".join((f"{form}{settings.change_stream}", *filter(None, [placement])))


def _is_equal(name: str, other: str, dialect: Dialect) -> bool:
    # GoogleSQL's function names ignore case, PostgreSQL's do not.
    return name == other or (dialect is Dialect.GOOGLESQL and name.lower() == other.lower())


def _function_not_found(dialect: Dialect, function: str, position: int) -> Refusal:
    if dialect is Dialect.GOOGLESQL:
        return Refusal("INVALID_ARGUMENT", f"Table-valued function not found: {function} [at 1:{position}]")
    arguments = "timestamp with time zone, timestamp with time zone, text, bigint, unknown"
    return Refusal("NOT_FOUND", f"[ERROR] function spanner.{function}({arguments}) does not exist")


def _calls(tokens: Sequence[Token], dialect: Dialect) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield the place and the matched name of each call of a read function."""
    for place, token in enumerate(tokens):
        call = _FUNCTIONS[dialect].fullmatch(token.value) if token.is_identifier else None
        if call is not None and at(tokens, place + 1).is_mark("("):
            schema, dot = at(tokens, place - 2), at(tokens, place - 1)
            is_of_spanner = schema.is_identifier and schema.value.lower() == "spanner" and dot.is_mark(".")
            if dialect is Dialect.GOOGLESQL or is_of_spanner:
                yield place, call


def _selects_all(tokens: Sequence[Token], dialect: Dialect) -> bool:
    """Return whether the query before the function's name selects its only column, by name or as `*`."""
    before = tokens[:-1] if dialect is Dialect.GOOGLESQL else tokens[:-3]
    column = "ChangeRecord" if dialect is Dialect.GOOGLESQL else tokens[-1].value
    return (
        len(before) == len(("SELECT", "*", "FROM"))
        and before[0].is_word("SELECT")
        and (before[1].is_mark("*") or (before[1].is_identifier and before[1].value == column))
        and before[2].is_word("FROM")
    )


def _bind(tokens: Sequence[Token], function: str) -> dict[str, list[Token]]:
    """Return the tokens of each argument by its name."""
    bound: dict[str, list[Token]] = {}
    arguments = split_list(tokens)
    if len(arguments) > len(_ARGUMENTS):
        raise Refusal(
            "INVALID_ARGUMENT",
            f"No matching signature for {function}: Signature accepts at most {len(_ARGUMENTS)} arguments, "
            f"found {len(arguments)} arguments",
        )
    for argument, positional in zip(arguments, _ARGUMENTS, strict=False):
        is_named = argument[0].is_identifier and at(argument, 1).is_mark("=>")
        name = argument[0].value.lower() if is_named else positional
        if name not in _ARGUMENTS:
            raise Refusal(
                "INVALID_ARGUMENT",
                f"Named argument {name} not found in signature for call to {function}; it has "
                f"{', '.join(_ARGUMENTS)}",
            )
        if name in bound:
            raise Refusal("INVALID_ARGUMENT", f"Duplicate named argument {name} found in call to {function}")
        bound[name] = argument[2:] if is_named else argument
    return bound


def _argument(
    tokens: Sequence[Token], parameters: Parameters, types: Mapping[str, str], function: str, position: int
) -> Argument:
    first, is_single = at(tokens, 0), len(tokens) == 1
    if first.kind is TokenKind.PARAMETER and is_single:
        name = find_parameter(parameters, first.value)
        return Argument(parameters[name], types.get(name, ""))
    literal = tokens[1:] if first.is_word("TIMESTAMP", "ARRAY") else tokens
    begin = at(literal, 0)
    if begin.is_mark("[") and closing(literal, 0) == len(literal) - 1:
        return Argument([token.text for token in literal], "ARRAY")
    if begin.kind is TokenKind.NUMBER and is_single and begin.text.isdecimal():
        return Argument(begin.text, "INT64")
    if end_of_casts(literal, 1) == len(literal):
        if first.is_word("NULL"):
            return Argument(None)
        if begin.kind is TokenKind.TEXT:
            return Argument(begin.value)
    raise Refusal(
        "INVALID_ARGUMENT",
        f"Invalid argument of change stream TVF {function}. Argument {position} is not a literal or "
        "parameter. Implicit type conversions are not supported.",
    )


def _check_type(function: str, name: str, argument: Argument) -> None:
    expected_type, value = _ARGUMENTS[name], argument.value
    if name == "read_options":
        return
    if argument.type_name not in ("", expected_type):
        raise _other_type(function, name, expected_type, argument.type_name)
    if expected_type == "INT64":
        is_right = type(value) is int or (isinstance(value, str) and _INT64.fullmatch(value) is not None)
    else:
        is_right = isinstance(value, str)
    if value is not None and not is_right:
        raise _other_type(function, name, expected_type, repr(value))


def _other_type(function: str, name: str, expected: str, actual: str) -> Refusal:
    return Refusal(
        "INVALID_ARGUMENT",
        f"Invalid argument of change stream TVF {function}. {name} must be {expected}, but is {actual}. "
        "Implicit type conversions are not supported.",
    )


def _query(values: Mapping[str, Any]) -> StreamQuery:
    heartbeat = values.get("heartbeat_milliseconds")
    return StreamQuery(
        start_micros=_start_micros(values.get("start_timestamp")),
        end_micros=_micros(values.get("end_timestamp")),
        token=values.get("partition_token"),
        heartbeat_ms=None if heartbeat is None else int(heartbeat),
        has_read_options=values.get("read_options") is not None,
    )


def _start_micros(text: str | None) -> int | None:
    micros = _micros(text)
    # Records are at whole microseconds, and records before the start are not returned.
    return micros if text is None or micros is None else micros + is_between_micros(text)


def _micros(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return from_rfc3339(text)
    except (ValueError, OverflowError) as error:
        raise Refusal("INVALID_ARGUMENT", f"Invalid timestamp: '{text}'") from error
