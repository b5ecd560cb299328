"""Queries as text, typed parameters and requests, without network access."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cdc_platform.model.base.names import ROOT_TOKEN, quote_postgresql, quote_spanner
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.sources.spanner.client.placements import split_token
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings

STRING: Final = "STRING"
INT64: Final = "INT64"
TIMESTAMP: Final = "TIMESTAMP"
STRING_ARRAY: Final = "ARRAY<STRING>"

CHANGE_RECORD_QUERY: Final = (
    "SELECT ChangeRecord FROM {function}("
    "start_timestamp => @start_timestamp, "
    "end_timestamp => @end_timestamp, "
    "partition_token => @partition_token, "
    "heartbeat_milliseconds => @heartbeat_milliseconds, "
    "read_options => @read_options)"
)
POSTGRESQL_RECORD_QUERY: Final = 'SELECT * FROM "spanner".{function}($1,$2,$3,$4,$5)'
DIALECT_QUERY: Final = (
    "SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'"
)
"""Valid in both dialects, so it can find out which one applies."""


class ReadFunction(StrEnum):
    """Read function of a change stream: the prefix of its name, which the stream's name follows."""

    OF_GOOGLESQL = "READ_"
    """Returns structs, or messages if the partition mode is MUTABLE_KEY_RANGE."""
    OF_POSTGRESQL = "read_json_"
    """Returns JSON objects."""
    OF_POSTGRESQL_MESSAGES = "read_proto_bytes_"
    """Returns messages; replaces the other function if the mode is MUTABLE_KEY_RANGE."""


@dataclass(frozen=True)
class Parameter:
    """A bound value: its type, and its text on the wire (INT64 and TIMESTAMP are texts)."""

    type_name: str
    text: str | None


@dataclass(frozen=True)
class Query:
    """SQL text with its parameters; a read at one exact timestamp, or a strong read without one."""

    sql: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    read_micros: int | None = None


def change_stream_query(
    change_stream: str,
    token: str,
    start_inclusive_micros: int,
    end_inclusive_micros: int,
    heartbeat_ms: int,
    read_function: ReadFunction = ReadFunction.OF_GOOGLESQL,
) -> Query:
    """Return the query for one partition's records, with its placement's function; both ends are inclusive.

    All five arguments are bound, in GoogleSQL by name, because some functions have no defaults.
    PostgreSQL knows them only by position, as `p1` to `p5`.
    """
    function, token = split_token(token, f"{read_function}{change_stream}")
    parameters = {
        "start_timestamp": Parameter(TIMESTAMP, to_rfc3339(start_inclusive_micros)),
        "end_timestamp": Parameter(TIMESTAMP, to_rfc3339(end_inclusive_micros)),
        "partition_token": Parameter(STRING, None if token == ROOT_TOKEN else token),
        "heartbeat_milliseconds": Parameter(INT64, str(heartbeat_ms)),
        "read_options": Parameter(STRING_ARRAY, None),
    }
    if read_function is ReadFunction.OF_GOOGLESQL:
        function = quote_spanner(function)
        return Query(CHANGE_RECORD_QUERY.format(function=function), parameters)
    function = quote_postgresql(function)
    return Query(
        POSTGRESQL_RECORD_QUERY.format(function=function),
        {f"p{number}": parameter for number, parameter in enumerate(parameters.values(), start=1)},
    )


def to_request(query: Query, settings: SpannerSettings, session: str) -> Any:
    """Return the request of Spanner's API for a query in a single-use read-only transaction."""
    from google.cloud.spanner_v1.types import ExecuteSqlRequest

    request = ExecuteSqlRequest(
        session=session,
        sql=query.sql,
        transaction=single_use(query.read_micros),
        request_options=request_options(settings),
    )
    message = ExecuteSqlRequest.pb(request)
    for name, parameter in query.parameters.items():
        _bind(message, name, parameter)
    return request


def single_use(read_micros: int | None) -> Any:
    """Return the selector of a read-only transaction for one request, at a timestamp or strong."""
    from google.cloud.spanner_v1.types import TransactionSelector

    # return_read_timestamp stays off: for change streams Spanner fills it with a value that
    # the client's datetime cannot hold.
    bound = {"strong": True} if read_micros is None else {"read_timestamp": to_rfc3339(read_micros)}
    return TransactionSelector({"single_use": {"read_only": bound}})


def request_options(settings: SpannerSettings) -> Any:
    """Return the priority and the tag of every request."""
    from google.cloud.spanner_v1.types import RequestOptions

    priority = RequestOptions.Priority[f"PRIORITY_{settings.priority}"]
    return RequestOptions(priority=priority, request_tag=settings.request_tag)


def _bind(message: Any, name: str, parameter: Parameter) -> None:
    from google.cloud.spanner_v1.types import TypeCode

    value = message.params.fields[name]
    if parameter.text is None:
        value.null_value = 0
    else:
        value.string_value = parameter.text
    if parameter.type_name == STRING_ARRAY:
        message.param_types[name].code = TypeCode.ARRAY.value
        message.param_types[name].array_element_type.code = TypeCode.STRING.value
    else:
        message.param_types[name].code = TypeCode[parameter.type_name].value
