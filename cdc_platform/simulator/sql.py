"""SQL texts as far as the simulator answers them: what they are, with their arguments put in."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cdc_platform.model.timestamps import from_rfc3339
from cdc_platform.simulator import problems
from cdc_platform.simulator.settings import Dialect, PartitionMode, SimulatorSettings
from cdc_platform.simulator.stream import StreamQuery

Parameters = Mapping[str, Any]
"""Values of bound parameters by name: text, number, truth, None or list."""

_ARGUMENTS: Final = {
    "start_timestamp": "TIMESTAMP",
    "end_timestamp": "TIMESTAMP",
    "partition_token": "STRING",
    "heartbeat_milliseconds": "INT64",
    "read_options": "ARRAY",
}
"""The read functions' arguments in their order, and the codes of their types."""
_INT64: Final = re.compile(r"-?[0-9]{1,19}")
_GOOGLESQL_READ: Final = re.compile(r"`?\bREAD_(?P<stream>\w+)`?\s*\(", re.IGNORECASE)
_GOOGLESQL_WHOLE: Final = re.compile(
    r"\s*SELECT\s+ChangeRecord\s+FROM\s+`?READ_\w+`?\s*\((?P<arguments>.*)\)\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
_POSTGRESQL_READ: Final = re.compile(
    r'"?spanner"?\s*\.\s*"?(?P<form>read_json_|read_proto_bytes_)(?P<stream>\w+)"?\s*\(', re.IGNORECASE
)
_POSTGRESQL_WHOLE: Final = re.compile(
    r'\s*SELECT\s+\*\s+FROM\s+"?spanner"?\s*\.\s*"?read_(?:json|proto_bytes)_\w+"?\s*\((?P<arguments>.*)\)\s*;?\s*',
    re.IGNORECASE | re.DOTALL,
)
_FORMS: Final = {
    # PostgreSQL's read functions say in which form they return records.
    PartitionMode.IMMUTABLE_KEY_RANGE: "read_json_",
    PartitionMode.MUTABLE_KEY_RANGE: "read_proto_bytes_",
}
_NAMED: Final = re.compile(r"\s*(?P<name>\w+)\s*=>\s*(?P<value>.*)", re.DOTALL)
_LITERAL: Final = re.compile(
    r"""(?:TIMESTAMP\s+)?(?P<quote>['"])(?P<text>[^'"]*)(?P=quote)(?:::\w+)?|(?P<number>\d+)|(?P<array>(?:ARRAY)?\[.*\])""",
    re.IGNORECASE | re.DOTALL,
)
_PARAMETER: Final = re.compile(r"@(?P<name>\w+)|\$(?P<number>\d+)")


@dataclass(frozen=True)
class StreamCall:
    """A query of a change stream's read function."""

    function: str
    query: StreamQuery


@dataclass(frozen=True)
class Argument:
    """The value of an argument, and the code of the type that it has for certain, if any."""

    value: Any
    type_name: str = ""


def find_stream_call(
    sql: str, parameters: Parameters, settings: SimulatorSettings, types: Mapping[str, str] | None = None
) -> StreamCall | None:
    """Return the call of a read function, None when the text has none.

    `types` are the type codes of the parameters that declare one.

    Raises:
        Refusal: It calls one, but not so that Spanner would answer.
    """
    dialect = settings.dialect
    is_googlesql = dialect is Dialect.GOOGLESQL
    call = (_GOOGLESQL_READ if is_googlesql else _POSTGRESQL_READ).search(sql)
    if call is None:
        return None
    function = f"{'READ_' if is_googlesql else call['form']}{call['stream']}"
    whole = (_GOOGLESQL_WHOLE if is_googlesql else _POSTGRESQL_WHOLE).fullmatch(sql)
    is_right = is_googlesql or call["form"].lower() == _FORMS[settings.partition_mode]
    if not is_right or not _is_equal(call["stream"], settings.change_stream, dialect):
        raise problems.function_not_found(dialect, function, call.start() + 1)
    if whole is None or _closes_early(whole["arguments"]):
        raise problems.combined(dialect, function)
    bound = _bound(whole["arguments"], function)
    found = {
        name: _argument(text, parameters, types or {}, function, position)
        for position, (name, text) in enumerate(bound.items())
    }
    for name, argument in found.items():
        _check_type(function, name, argument)
    return StreamCall(function, _query({name: argument.value for name, argument in found.items()}))


def _is_equal(name: str, other: str, dialect: Dialect) -> bool:
    # GoogleSQL's function names know no case, PostgreSQL's do.
    return name == other or (dialect is Dialect.GOOGLESQL and name.lower() == other.lower())


def _bound(text: str, function: str) -> dict[str, str]:
    """Return the text of each argument by its name."""
    bound: dict[str, str] = {}
    arguments = split_list(text)
    if len(arguments) > len(_ARGUMENTS):
        raise problems.too_many_arguments(function, len(_ARGUMENTS), len(arguments))
    for argument, positional in zip(arguments, _ARGUMENTS, strict=False):
        named = _NAMED.fullmatch(argument)
        name = named["name"].lower() if named else positional
        if name not in _ARGUMENTS:
            raise problems.argument_unknown(function, name, _ARGUMENTS)
        if name in bound:
            raise problems.argument_twice(function, name)
        bound[name] = (named["value"] if named else argument).strip()
    return bound


def _argument(
    text: str, parameters: Parameters, types: Mapping[str, str], function: str, position: int
) -> Argument:
    if text.upper() == "NULL":
        return Argument(None)
    parameter = _PARAMETER.fullmatch(text)
    if parameter is not None:
        name = parameter["name"] or f"p{parameter['number']}"
        found = next((key for key in parameters if key.lower() == name.lower()), None)
        if found is None:
            raise problems.Refusal("INVALID_ARGUMENT", f"No parameter found for binding: {name}")
        return Argument(parameters[found], types.get(found, ""))
    literal = _LITERAL.fullmatch(text)
    if literal is None:
        raise problems.argument_is_expression(function, position)
    if literal["number"] is not None:
        return Argument(literal["number"], "INT64")
    return Argument(literal["array"], "ARRAY") if literal["array"] is not None else Argument(literal["text"])


def _check_type(function: str, name: str, argument: Argument) -> None:
    expected, value = _ARGUMENTS[name], argument.value
    if name == "read_options":
        return
    if argument.type_name not in ("", expected):
        raise problems.argument_of_other_type(function, name, expected, argument.type_name)
    if expected == "INT64":
        is_right = type(value) is int or (isinstance(value, str) and _INT64.fullmatch(value) is not None)
    else:
        is_right = isinstance(value, str)
    if value is not None and not is_right:
        raise problems.argument_of_other_type(function, name, expected, repr(value))


def _query(values: Mapping[str, Any]) -> StreamQuery:
    heartbeat = values.get("heartbeat_milliseconds")
    return StreamQuery(
        start_micros=_micros(values.get("start_timestamp")),
        end_micros=_micros(values.get("end_timestamp")),
        token=values.get("partition_token"),
        heartbeat_ms=None if heartbeat is None else int(heartbeat),
        has_read_options=values.get("read_options") is not None,
    )


def _micros(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return from_rfc3339(text)
    except (ValueError, OverflowError) as error:
        raise problems.Refusal("INVALID_ARGUMENT", f"Invalid timestamp: '{text}'") from error


def _closes_early(arguments: str) -> bool:
    """Return whether the parentheses close before the end: the text goes on after the call."""
    depth = 0
    for character in _outside_quotes(arguments):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return True
    return False


def split_list(text: str) -> list[str]:
    """Return the items between commas that are in no quotes and no parentheses."""
    items, depth, begin = [], 0, 0
    for position, character in enumerate(_outside_quotes(text)):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            items.append(text[begin:position])
            begin = position + 1
    items.append(text[begin:])
    return [item for item in items if item.strip()]


def _outside_quotes(text: str) -> Iterator[str]:
    """Yield every character, those in quotes as spaces."""
    quote = ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
            yield " "
        elif character in "'\"`":
            quote = character
            yield " "
        else:
            yield character
