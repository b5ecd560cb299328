from google.cloud.spanner_v1.types import ExecuteSqlRequest

from cdc_platform.sources.spanner.client.query import Query, ReadFunction, change_stream_query, to_request
from cdc_platform.sources.spanner.spanner_settings import Priority, SpannerSettings

SETTINGS = SpannerSettings("p", "i", "d", "s", priority=Priority.LOW, request_tag="cdc_platform/bank")


def request_of(query: Query) -> ExecuteSqlRequest:
    """Return the request of a query."""
    request: ExecuteSqlRequest = to_request(query, SETTINGS, "session")
    return request


def test_all_arguments_are_bound_by_name() -> None:
    """The read function gets all five arguments by name, as typed parameters."""
    query = change_stream_query("s", "token", 1_000_000, 2_000_001, 2000)
    message = ExecuteSqlRequest.pb(request_of(query))

    assert message.sql == (
        "SELECT ChangeRecord FROM `READ_s`(start_timestamp => @start_timestamp, "
        "end_timestamp => @end_timestamp, partition_token => @partition_token, "
        "heartbeat_milliseconds => @heartbeat_milliseconds, read_options => @read_options)"
    )
    assert dict(message.params) == {
        "start_timestamp": "1970-01-01T00:00:01.000000Z",
        "end_timestamp": "1970-01-01T00:00:02.000001Z",
        "partition_token": "token",
        "heartbeat_milliseconds": "2000",
        "read_options": None,
    }
    assert set(message.params) == set(message.param_types)


def test_postgresql_binds_by_position() -> None:
    """PostgreSQL's read function is in a separate schema and gets all five arguments by position."""
    query = change_stream_query("MyStream", "token", 1_000_000, 2_000_001, 2000, ReadFunction.OF_POSTGRESQL)
    message = ExecuteSqlRequest.pb(request_of(query))

    assert message.sql == 'SELECT * FROM "spanner"."read_json_MyStream"($1,$2,$3,$4,$5)'
    assert dict(message.params) == {
        "p1": "1970-01-01T00:00:01.000000Z",
        "p2": "1970-01-01T00:00:02.000001Z",
        "p3": "token",
        "p4": "2000",
        "p5": None,
    }
    assert set(message.params) == set(message.param_types)


def test_query_without_token_binds_null() -> None:
    """The query that a stream begins with has NULL for its token."""
    message = ExecuteSqlRequest.pb(request_of(change_stream_query("s", "", 1, 2, 2000)))

    assert dict(message.params)["partition_token"] is None


def test_name_with_quotes_stays_a_name() -> None:
    """A name cannot end the identifier that it is quoted in."""
    assert r"FROM `READ_a\`b`(" in change_stream_query("a`b", "", 1, 2, 2000).sql
    postgresql = change_stream_query('a"b', "", 1, 2, 2000, ReadFunction.OF_POSTGRESQL)
    assert 'FROM "spanner"."read_json_a""b"(' in postgresql.sql


def test_request_is_strong_and_tagged() -> None:
    """A change stream is read strongly, with tag and priority, and without asking for a read timestamp."""
    request = request_of(Query("SELECT 1"))

    assert request.transaction.single_use.read_only.strong
    assert not request.transaction.single_use.read_only.return_read_timestamp
    assert request.request_options.request_tag == "cdc_platform/bank"
    assert request.request_options.priority.name == "PRIORITY_LOW"


def test_exact_read_names_its_timestamp() -> None:
    """A read of the past names its timestamp to the microsecond."""
    read_only = ExecuteSqlRequest.pb(request_of(Query("SELECT 1", read_micros=1_000_001)))

    timestamp = read_only.transaction.single_use.read_only.read_timestamp
    assert (timestamp.seconds, timestamp.nanos) == (1, 1000)
