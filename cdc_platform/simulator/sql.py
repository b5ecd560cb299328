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

_ARGUMENTS: Final = (
    "start_timestamp",
    "end_timestamp",
    "partition_token",
    "heartbeat_milliseconds",
    "read_options",
)
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


def find_stream_call(sql: str, parameters: Parameters, settings: SimulatorSettings) -> StreamCall | None:
    """Return the call of a read function, None when the text has none.

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
    values = _bound(whole["arguments"], parameters, function)
    return StreamCall(function, _query(values))


def _is_equal(name: str, other: str, dialect: Dialect) -> bool:
    # GoogleSQL's function names know no case, PostgreSQL's do.
    return name == other or (dialect is Dialect.GOOGLESQL and name.lower() == other.lower())


def _bound(text: str, parameters: Parameters, function: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for position, argument in enumerate(split_list(text)):
        named = _NAMED.fullmatch(argument)
        name = named["name"].lower() if named else _ARGUMENTS[min(position, len(_ARGUMENTS) - 1)]
        value = (named["value"] if named else argument).strip()
        values[name] = _value(value, parameters, function, position)
    return values


def _value(text: str, parameters: Parameters, function: str, position: int) -> Any:
    if text.upper() == "NULL":
        return None
    parameter = _PARAMETER.fullmatch(text)
    if parameter is not None:
        name = parameter["name"] or f"p{parameter['number']}"
        found = next((key for key in parameters if key.lower() == name.lower()), None)
        if found is None:
            raise problems.Refusal("INVALID_ARGUMENT", f"No parameter found for binding: {name}")
        return parameters[found]
    literal = _LITERAL.fullmatch(text)
    if literal is None:
        raise problems.argument_is_expression(function, position)
    return next(literal[kind] for kind in ("number", "text", "array") if literal[kind] is not None)


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
    except ValueError as error:
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
