"""The queries that other readers of change streams send, word for word, on simulator and emulator."""

from dataclasses import dataclass
from typing import Any, Final

import pytest
from google.cloud.spanner_v1 import param_types

from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform_tests.server_fixtures import SERVERS
from cdc_platform_tests.sources.spanner.servers import CHANGE_STREAM, CHILDREN, Server

pytestmark = pytest.mark.integration

GOOGLESQL, POSTGRESQL = Dialect.GOOGLESQL, Dialect.POSTGRESQL
STREAM: Final = (CHANGE_STREAM, param_types.STRING)
TABLES: Final = (["accounts", "nowhere"], param_types.Array(param_types.STRING))
JOINED: Final = (
    "from  information_schema.change_streams cs\nleft join  information_schema.change_stream_tables cst\n"
    "on  cst.change_stream_name = cs.change_stream_name\nleft join"
    "  information_schema.change_stream_columns csc\non  csc.change_stream_name = cs.change_stream_name\n"
    "  and csc.table_name = cst.table_name\nwhere cs.change_stream_name = "
)


@dataclass(frozen=True)
class Query:
    """A query of a client's, with its parameters, and its answer."""

    dialect: Dialect
    sql: str
    parameters: dict[str, tuple[Any, Any]]
    answer: list[list[Any]]


QUERIES: Final = {
    "Debezium: is the stream there": Query(
        GOOGLESQL,
        "select change_stream_name from information_schema.change_streams cs "
        "where cs.change_stream_name = @streamname",
        {"streamName": STREAM},
        [[CHANGE_STREAM]],
    ),
    "Debezium: what the stream watches": Query(
        GOOGLESQL,
        f"select  cs.all,  cst.table_name,  cst.all_columns,  csc.column_name\n{JOINED}@streamName",
        {"streamName": STREAM},
        [[True, None, None, None]],
    ),
    "Debezium: what the stream watches, PG": Query(
        POSTGRESQL,
        "select  CASE WHEN cs.all = 'YES' then true else false end AS all,  cst.table_name,"
        "  CASE WHEN cst.all_columns = 'YES' then true else false end AS all_columns,  csc.column_name\n"
        f"{JOINED}$1",
        {"p1": STREAM},
        [[True, None, False, None]],
    ),
    "Debezium: columns": Query(
        GOOGLESQL,
        "SELECT  table_name,  column_name,  spanner_type,  ordinal_position,"
        "  IF(is_nullable = 'YES', true, false) AS is_nullable\nFROM  information_schema.COLUMNS \n"
        "WHERE  table_catalog = ''  AND table_schema = ''  AND table_name in UNNEST(@tables)",
        {"tables": TABLES},
        [
            ["accounts", "account_id", "INT64", 1, False],
            ["accounts", "balance", "INT64", 3, False],
            ["accounts", "labels", "ARRAY<STRING(MAX)>", 5, True],
            ["accounts", "opened_on", "DATE", 4, True],
            ["accounts", "owner", "STRING(MAX)", 2, False],
        ],
    ),
    "Debezium: columns, PG": Query(
        POSTGRESQL,
        "SELECT  table_name,  column_name,  spanner_type,  ordinal_position,"
        "  CASE WHEN is_nullable = 'YES' THEN TRUE ELSE FALSE END AS is_nullable\n"
        "FROM  information_schema.COLUMNS \nWHERE  table_schema = 'public'"
        " AND table_name = ANY(Array['accounts','nowhere'])",
        {},
        [
            ["accounts", "account_id", "bigint", 1, False],
            ["accounts", "balance", "bigint", 3, False],
            ["accounts", "labels", "character varying[]", 5, True],
            ["accounts", "opened_on", "date", 4, True],
            ["accounts", "owner", "character varying", 2, False],
        ],
    ),
    "Debezium: key": Query(
        GOOGLESQL,
        "SELECT  table_name,  column_name\nFROM  information_schema.index_columns \n"
        "WHERE   index_name = 'PRIMARY_KEY'  AND table_name in UNNEST(@tables)",
        {"tables": TABLES},
        [["accounts", "account_id"]],
    ),
    "Debezium: key, PG": Query(
        POSTGRESQL,
        "SELECT  table_name,  column_name\nFROM  information_schema.index_columns \n"
        "WHERE   index_name = 'PRIMARY_KEY'  AND table_name = ANY(Array['accounts','nowhere'])",
        {},
        [["accounts", "account_id"]],
    ),
    "Beam: is the metadata table there": Query(
        GOOGLESQL,
        "SELECT t.table_name FROM information_schema.tables AS t WHERE t.table_catalog = '' AND "
        "t.table_schema = '' AND t.table_name = 'Metadata_bank'",
        {},
        [],
    ),
    "Java client: dialect": Query(
        GOOGLESQL,
        "select option_value from information_schema.database_options where option_name='database_dialect'",
        {},
        [["GOOGLE_STANDARD_SQL"]],
    ),
    "Java client: dialect, PG": Query(
        POSTGRESQL,
        "select option_value from information_schema.database_options where option_name='database_dialect'",
        {},
        [["POSTGRESQL"]],
    ),
}
"""Of Debezium's connector 3.6.3, Beam 2.72 and Google's Java client."""

READ_ALL: Final = (
    f"SELECT * FROM READ_{CHANGE_STREAM}(   start_timestamp => @startTimestamp,"
    "   end_timestamp => @endTimestamp,   partition_token => @partitionToken,   read_options => null,"
    "   heartbeat_milliseconds => @heartbeatMillis)"
)
"""The change stream query of both Debezium and Beam; in PostgreSQL they send that of the whole suite."""


@pytest.mark.parametrize(
    ("server", "what"),
    [(pair, what) for pair in SERVERS for what, query in QUERIES.items() if query.dialect is pair[1]],
    indirect=["server"],
)
def test_queries_of_clients_are_answered(server: Server, what: str) -> None:
    """Both servers give the same answer to every query that a client sends before it reads a stream."""
    query = QUERIES[what]

    assert query.answer == sorted(server.select(query.sql, query.parameters), key=str)


@pytest.mark.parametrize("server", [pair for pair in SERVERS if pair[1] is GOOGLESQL], indirect=True)
def test_all_columns_of_the_read_function_are_its_record(server: Server) -> None:
    """`SELECT *` from a read function returns what `SELECT ChangeRecord` does."""
    start = to_datetime(server.created_micros)
    values = (start, None, None, 1000)
    types = (param_types.TIMESTAMP, param_types.TIMESTAMP, param_types.STRING, param_types.INT64)
    names = ("startTimestamp", "endTimestamp", "partitionToken", "heartbeatMillis")
    parameters = dict(zip(names, zip(values, types, strict=True), strict=True))

    rows = server.select(READ_ALL, parameters)
    other_rows = server.select(READ_ALL.replace("*", "ChangeRecord"), parameters)

    assert [CHILDREN] * len(rows) == [next(iter(record)) for record in server.read(start)]
    assert rows == other_rows != []
