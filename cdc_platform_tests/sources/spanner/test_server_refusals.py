"""Refusals of servers of change streams, with code and text; `<t>` is any timestamp."""

import re
from datetime import timedelta
from typing import Any, Final

import pytest

from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform_tests.server_fixtures import SERVERS
from cdc_platform_tests.sources.spanner.servers import CHANGE_STREAM, Refused, Server

pytestmark = pytest.mark.integration

TIMESTAMP: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00"
READ: Final = f"READ_{CHANGE_STREAM}"
READ_JSON: Final = f"read_json_{CHANGE_STREAM}"
GOOGLESQL, POSTGRESQL, BOTH = (Dialect.GOOGLESQL,), (Dialect.POSTGRESQL,), tuple(Dialect)

TOO_FAR_AHEAD: Final = (
    "Specified start_timestamp is too far in the future. Please specify a start_timestamp within the "
    "earliest read timestamp: <t>, and the current maximum start timestamp: <t>. "
    "Received start_timestamp: <t>."
)
TOO_FAR_BACK: Final = (
    "Specified start_timestamp is too far in the past. Please specify a start_timestamp within the earliest "
    "read timestamp: <t>. Received start_timestamp: <t>."
)
BACKWARDS: Final = (
    "If end_timestamp is specified, start_timestamp must be <= end_timestamp. Received start_timestamp: <t>, "
    "end_timestamp: <t>."
)
HEARTBEAT: Final = (
    "heartbeat_milliseconds must be within min 100 and max 300000. Received heartbeat_milliseconds: "
)
FOREIGN: Final = (
    "Specified partition_token is invalid, as it does not belong to the Change Stream associated with the "
    "TVF. Received partition_token: none."
)
NOT_SINGLE: Final = (
    "Change stream queries are not supported for multi use transactions. Change stream queries must be "
    "strong reads executed via single use transactions using the ExecuteStreamingSql API."
)
NOT_ALONE: Final = "Change stream TVF must not be combined with any other SQL statements."
NOT_ALONE_GOOGLESQL: Final = (
    f"{NOT_ALONE} Change stream records should be read using `SELECT ChangeRecord FROM {READ}(<args>)`."
)
NOT_ALONE_POSTGRESQL: Final = (
    f'{NOT_ALONE} Change stream records should be read using `select * from "spanner"."{READ_JSON}"(<args>)`.'
)
EXPRESSION: Final = (
    "Invalid argument of change stream TVF {}. Argument 0 is not a literal or parameter. Implicit type "
    "conversions are not supported."
)
NO_FUNCTION: Final = (
    "[ERROR] function spanner.read_json_nope(timestamp with time zone, timestamp with time zone, text, "
    "bigint, unknown) does not exist"
)
NOT_STALE: Final = {"exact_staleness": timedelta(microseconds=1)}

ARGUMENTS: Final[dict[str, tuple[dict[str, Any], str, str]]] = {
    # what is asked, in minutes from the server's present where it is a time; code and text
    "start is NULL": ({"start": None}, "INVALID_ARGUMENT", "start_timestamp must not be null."),
    "start in the future": ({"start": 20}, "OUT_OF_RANGE", TOO_FAR_AHEAD),
    "start before the retention": ({"start": -60 * 24 * 40}, "OUT_OF_RANGE", TOO_FAR_BACK),
    "end before start": ({"start": 0, "end": -1}, "INVALID_ARGUMENT", BACKWARDS),
    "no heartbeat": (
        {"start": 0, "heartbeat_ms": None},
        "INVALID_ARGUMENT",
        "heartbeat_milliseconds must not be null.",
    ),
    "heartbeat too short": ({"start": 0, "heartbeat_ms": 99}, "OUT_OF_RANGE", f"{HEARTBEAT}99."),
    "heartbeat too long": ({"start": 0, "heartbeat_ms": 300_001}, "OUT_OF_RANGE", f"{HEARTBEAT}300001."),
    "token of no partition": ({"start": 0, "token": "none"}, "INVALID_ARGUMENT", FOREIGN),
    "many reads": ({"start": 0, "snapshot": {"multi_use": True}}, "INVALID_ARGUMENT", NOT_SINGLE),
    "not strong": ({"start": 0, "snapshot": NOT_STALE}, "INVALID_ARGUMENT", NOT_SINGLE),
}

STATEMENTS: Final[dict[str, tuple[tuple[Dialect, ...], str, str, str]]] = {
    # what is wrong with the text: dialects, the text with the right one as {}, code and text
    "condition": (BOTH, "{} WHERE true", "UNIMPLEMENTED", NOT_ALONE),
    "alias": (BOTH, "{} AS x", "UNIMPLEMENTED", NOT_ALONE),
    "limit": (GOOGLESQL, "{} LIMIT 1", "UNIMPLEMENTED", NOT_ALONE_GOOGLESQL),
    "count": (
        GOOGLESQL,
        f"SELECT COUNT(*) FROM {READ}(@p1, @p2, @p3, @p4)",
        "UNIMPLEMENTED",
        NOT_ALONE_GOOGLESQL,
    ),
    "another column": (
        POSTGRESQL,
        f'SELECT *, 1 FROM "spanner"."{READ_JSON}"($1, $2, $3, $4, null)',
        "UNIMPLEMENTED",
        NOT_ALONE_POSTGRESQL,
    ),
    "expression": (
        GOOGLESQL,
        f"SELECT ChangeRecord FROM {READ}(CURRENT_TIMESTAMP(), @p2, @p3, @p4)",
        "INVALID_ARGUMENT",
        EXPRESSION.format(READ),
    ),
    "PG expression": (
        POSTGRESQL,
        f'SELECT * FROM "spanner"."{READ_JSON}"(now(), $2, $3, $4, null)',
        "INVALID_ARGUMENT",
        EXPRESSION.format(READ_JSON),
    ),
    "read options": (
        GOOGLESQL,
        f"SELECT ChangeRecord FROM {READ}(@p1, @p2, @p3, @p4, ['a'])",
        "UNIMPLEMENTED",
        "read_options must be null.",
    ),
    "no such stream": (
        GOOGLESQL,
        "SELECT ChangeRecord FROM READ_nope(@p1, @p2, @p3, @p4)",
        "INVALID_ARGUMENT",
        "Table-valued function not found: READ_nope [at 1:26]",
    ),
    "PG: no such stream": (
        POSTGRESQL,
        'SELECT * FROM "spanner"."read_json_nope"($1, $2, $3, $4, null)',
        "NOT_FOUND",
        NO_FUNCTION,
    ),
    "PG: wrong case": (
        POSTGRESQL,
        f'SELECT * FROM "spanner"."{READ_JSON.upper()}"($1, $2, $3, $4, null)',
        "NOT_FOUND",
        "[ERROR] function spanner.",
    ),
    "no such table": (GOOGLESQL, "SELECT x FROM nope", "INVALID_ARGUMENT", "Table not found: nope"),
    "PG: no such table": (POSTGRESQL, "SELECT x FROM nope", "NOT_FOUND", 'relation "nope" does not exist'),
    "no such column": (GOOGLESQL, "SELECT x FROM accounts", "INVALID_ARGUMENT", "Unrecognized name: x"),
    "PG: no such column": (
        POSTGRESQL,
        "SELECT x FROM accounts",
        "INVALID_ARGUMENT",
        '[ERROR] column "x" does not exist',
    ),
    "write": (
        BOTH,
        "DELETE FROM accounts WHERE true",
        "INVALID_ARGUMENT",
        "DML statements may not be performed in single-use transactions, to avoid replay.",
    ),
}


def assert_refused(refused: Refused, code: str, text: str) -> None:
    """Fail unless a refusal has the code, and begins with the text."""
    assert code == refused.code
    assert re.match(re.escape(text).replace("<t>", TIMESTAMP), refused.text), refused.text


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_arguments_that_are_refused(server: Server, argument: str) -> None:
    """Arguments that cannot be served are refused with Spanner's code and text."""
    arguments, code, text = ARGUMENTS[argument]
    now = server.now()
    times = {
        name: None if minutes is None else now + timedelta(minutes=minutes)
        for name, minutes in arguments.items()
        if name in ("start", "end")
    }

    assert_refused(server.refusal(**{**arguments, **times}), code, text)


@pytest.mark.parametrize(
    ("server", "wrong"),
    [
        (pair, wrong)
        for pair in SERVERS
        for wrong, (dialects, *_) in STATEMENTS.items()
        if pair[1] in dialects
    ],
    indirect=["server"],
)
def test_statements_that_are_refused(server: Server, wrong: str) -> None:
    """A read function is the whole statement, and what is not there cannot be read."""
    _, sql, code, text = STATEMENTS[wrong]

    refused = server.refusal(to_datetime(server.created_micros), sql=sql.format(server.stream_sql()))

    assert_refused(refused, code, text)
