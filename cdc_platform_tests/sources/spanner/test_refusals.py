"""Every refusal of Spanner, in both dialects, as an error of the platform that says what to do."""

from dataclasses import dataclass, replace
from typing import Any

import grpc  # type: ignore[import-untyped] # ships no types
import pytest
from google.api_core.exceptions import GoogleAPICallError

from cdc_platform.errors import (
    DefinitionRefused,
    PartitionBoundsInvalid,
    QueryRefused,
    RetentionExpired,
    SourceError,
    SourceNotFound,
)
from cdc_platform.model.base.timestamps import from_datetime, from_rfc3339
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.failures import to_source_error
from cdc_platform.sources.spanner.client.query import Parameter, Query, change_stream_query, to_request
from cdc_platform.sources.spanner.spanner_settings import Dialect, SpannerSettings
from cdc_platform.sources.spanner.stream.window_reader import read_window
from cdc_platform_tests.servers.bank import BankSettings, create_instance, open_client
from cdc_platform_tests.sources.spanner.fake_server import Answer, fake_server

HOUR = 3_600_000_000
EXPIRED = (
    "This partition is no longer valid. All Change Stream records associated with this partition "
    "have expired and have been deleted, as specified by the Change Stream retention period."
)


@dataclass(frozen=True)
class Database:
    """A database with a change stream `s`, and the moment right after it was made."""

    dialect: Dialect
    bank: BankSettings
    client: SpannerClient
    now_micros: int

    def query(self, start_micros: int | None = None, end_micros: int | None = None) -> Query:
        """Return a valid query except for its bounds."""
        start = self.now_micros if start_micros is None else start_micros
        return change_stream_query("s", "", start, end_micros or start, 1000, self.client.read_function)

    def with_argument(self, position: int, text: str | None) -> Query:
        """Return the query with another text for one of its five arguments."""
        query = self.query()
        name = list(query.parameters)[position]
        changed = Parameter(query.parameters[name].type_name, text)
        return replace(query, parameters={**query.parameters, name: changed})

    def with_sql(self, old: str, new: str) -> Query:
        """Return the query with another text; `old` is an argument in GoogleSQL."""
        query = self.query()
        if self.dialect is Dialect.POSTGRESQL:
            position = list(change_stream_query("s", "", 1, 1, 1000).parameters).index(old) + 1
            old = f"${position}"
        else:
            old = f"@{old}"
        assert old in query.sql
        return replace(query, sql=query.sql.replace(old, new))


@pytest.fixture(scope="module", params=list(Dialect))
def database(request: pytest.FixtureRequest, emulator: str) -> Database:
    """A database of each dialect."""
    from google.cloud.spanner_admin_database_v1 import DatabaseDialect

    dialect: Dialect = request.param
    bank = BankSettings(emulator, database=f"refusals-{dialect.value}")
    is_postgresql = dialect is Dialect.POSTGRESQL
    options = {"database_dialect": DatabaseDialect.POSTGRESQL} if is_postgresql else {}
    table = (
        "CREATE TABLE t (id bigint PRIMARY KEY, v text)"
        if is_postgresql
        else "CREATE TABLE t (id INT64, v STRING(MAX)) PRIMARY KEY (id)"
    )
    with open_client(bank) as client:
        create_instance(bank, client)
        created = client.instance(bank.instance).database(bank.database, **options)
        created.create().result(300)
        created.update_ddl([table, "CREATE CHANGE STREAM s FOR t"]).result(300)
    settings = SpannerSettings(bank.project, bank.instance, bank.database, "s", emulator_host=emulator)
    reader = SpannerClient(settings)
    clock = reader.fetch_texts(Query("SELECT CURRENT_TIMESTAMP"))[0][0]
    return Database(dialect, bank, reader, from_rfc3339(str(clock)))


def refusal(database: Database, query: Query) -> SourceError:
    """Return the error of a query."""
    with pytest.raises(SourceError) as caught:
        database.client.fetch(query)
    return caught.value


def assert_refused(actual: SourceError, error: type[SourceError], message: str, advice: str) -> None:
    """Check the kind of an error, that it contains Spanner's message, and that it states what to do."""
    assert error is type(actual)
    text = str(actual)
    before, _, after = text.partition("Spanner said ")
    assert message in after
    assert advice in before
    assert not actual.retryable


@pytest.mark.integration
@pytest.mark.parametrize(
    ("position", "text", "error", "message", "advice"),
    [
        (0, None, QueryRefused, "start_timestamp must not be null", "An argument is missing"),
        (2, "x", PartitionBoundsInvalid, "does not belong to the Change Stream", "dropped and created again"),
        (3, None, QueryRefused, "heartbeat_milliseconds must not be null", "An argument is missing"),
        (3, "99", QueryRefused, "within min 100 and max 300000", "Set `heartbeat_ms`"),
        (3, "300001", QueryRefused, "within min 100 and max 300000", "Set `heartbeat_ms`"),
    ],
)
def test_wrong_argument(
    database: Database,
    position: int,
    text: str | None,
    error: type[SourceError],
    message: str,
    advice: str,
) -> None:
    """An argument that Spanner does not take is named, and so is the setting behind it."""
    assert_refused(refusal(database, database.with_argument(position, text)), error, message, advice)


@pytest.mark.integration
def test_start_too_late(database: Database) -> None:
    """A start beyond the present can be mended by a setting."""
    error = refusal(database, database.query(database.now_micros + HOUR))
    assert_refused(error, PartitionBoundsInvalid, "too far in the future", "Set `start_timestamp`")


@pytest.mark.integration
def test_start_too_early(database: Database) -> None:
    """A start that the stream no longer has is loss, and the operator has choices."""
    error = refusal(database, database.query(database.now_micros - 24 * 90 * HOUR))
    assert_refused(error, RetentionExpired, "too far in the past", "begin a new lake folder")


@pytest.mark.integration
def test_end_before_start(database: Database) -> None:
    """A window that ends before it begins is our mistake, and said to be."""
    error = refusal(database, database.query(end_micros=database.now_micros - 1))
    assert_refused(error, QueryRefused, "start_timestamp must be <= end_timestamp", "before it begins")


@pytest.mark.integration
def test_start_outside_the_life_of_a_partition(database: Database) -> None:
    """A microsecond after a partition's end, or before its child's start, is a position that went wrong."""
    begin = database.now_micros - 1
    (root,) = rows_of(database, ReadWindow("", begin, begin + 1), "child_partitions")[:1]
    token = root["child_partitions"][0]["token"]
    (end,) = rows_of(database, ReadWindow(token, begin, begin + 20_000_000), "child_partitions")
    end_micros, child = from_datetime(end["record_timestamp"]), end["child_partitions"][0]["token"]

    for name, start_micros in ((token, end_micros + 1), (child, end_micros - 1)):
        query = change_stream_query(
            "s", name, start_micros, start_micros, 1000, database.client.read_function
        )
        error = refusal(database, query)
        assert_refused(error, PartitionBoundsInvalid, "invalid for the partition", "outside its life")


def rows_of(database: Database, window: ReadWindow, kind: str) -> list[dict[str, Any]]:
    """Return the records of one kind that a window holds; waits for its end."""
    rows = [row for batch in read_window(database.client, 1, window) for row in batch.to_pylist()]
    return [row for row in rows if row["kind"] == kind]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("old", "googlesql", "postgresql", "message"),
    [
        ("start_timestamp", "CURRENT_TIMESTAMP()", "now()", "not a literal or parameter"),
        ("read_options", "['a']", "ARRAY['a']", "read_options must be null"),
    ],
)
def test_argument_of_another_form(
    database: Database, old: str, googlesql: str, postgresql: str, message: str
) -> None:
    """State that only a newer or broken platform writes is not blamed on the operator."""
    new = postgresql if database.dialect is Dialect.POSTGRESQL else googlesql
    error = refusal(database, database.with_sql(old, new))
    assert_refused(error, QueryRefused, message, "update the platform")


@pytest.mark.integration
def test_query_that_does_more_than_read(database: Database) -> None:
    """A query with a condition is none of a change stream."""
    query = database.query()
    error = refusal(database, replace(query, sql=f"{query.sql} WHERE true"))
    assert_refused(error, QueryRefused, "must not be combined", "update the platform")


@pytest.mark.integration
def test_query_that_is_not_strong(database: Database) -> None:
    """A read at a timestamp is none of a change stream."""
    error = refusal(database, replace(database.query(), read_micros=database.now_micros))
    assert_refused(error, QueryRefused, "must be strong reads", "update the platform")


@pytest.mark.integration
def test_query_that_is_not_streamed(database: Database) -> None:
    """The unary call is refused, and so is a plan."""
    from google.cloud.spanner_v1.services.spanner import SpannerClient as GeneratedClient
    from google.cloud.spanner_v1.services.spanner.transports import SpannerGrpcTransport
    from google.cloud.spanner_v1.types import ExecuteSqlRequest

    channel = grpc.insecure_channel(database.bank.host)
    api = GeneratedClient(transport=SpannerGrpcTransport(channel=channel))
    path = database.client.settings.database_path
    session = api.create_session(request={"database": path, "session": {"multiplexed": True}}).name
    request = to_request(database.query(), database.client.settings, session)
    with pytest.raises(GoogleAPICallError) as unary:
        api.execute_sql(request=request)
    request.query_mode = ExecuteSqlRequest.QueryMode.PLAN
    with pytest.raises(GoogleAPICallError) as plan:
        list(api.execute_streaming_sql(request=request))
    channel.close()
    assert_refused(translated(unary.value), QueryRefused, "not supported for the ExecuteSql", "update")
    assert_refused(translated(plan.value), QueryRefused, "UNIMPLEMENTED", "update the platform")


def translated(error: Any) -> SourceError:
    """Return the platform's error for one of the stock client."""
    settings = SpannerSettings("p", "i", "d", "s")
    return to_source_error(settings, error.grpc_status_code.name, str(error.message))


@pytest.mark.integration
def test_stream_that_is_not_there(database: Database) -> None:
    """An unknown stream leads to its name; in PostgreSQL the case of a name may be all that is wrong."""
    query = change_stream_query(
        "S_nope", "", database.now_micros, database.now_micros, 1000, database.client.read_function
    )
    error = refusal(database, query)
    if database.dialect is Dialect.POSTGRESQL:
        assert_refused(error, SourceNotFound, "read_json_S_nope", "count upper and lower case")
    else:
        assert_refused(error, SourceNotFound, "READ_S_nope", "Check `project`")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("statements", "message", "advice"),
    [
        (["CREATE CHANGE STREAM r FOR t {retention}"], "Invalid retention_period", "`retention_period`"),
        (["DROP TABLE t"], "Cannot drop table t", "no longer names the table"),
        (["ALTER TABLE u DROP COLUMN v"], "tracked by", "no longer names the table"),
        (
            [
                "CREATE CHANGE STREAM s2 FOR t",
                "CREATE CHANGE STREAM s3 FOR t",
                "CREATE CHANGE STREAM s4 FOR t",
            ],
            "more than 3 Change Streams",
            "watch less",
        ),
        ([f"CREATE CHANGE STREAM n{number}" for number in range(10)], "limit 10", "Drop a change stream"),
    ],
)
def test_definition_that_is_refused(
    database: Database, statements: list[str], message: str, advice: str
) -> None:
    """A definition that Spanner refuses is reported as such, with advice."""
    is_postgresql = database.dialect is Dialect.POSTGRESQL
    retention = "WITH (retention_period = '30d')" if is_postgresql else "OPTIONS (retention_period = '30d')"
    with open_client(database.bank) as client:
        there = client.instance(database.bank.instance).database(database.bank.database)
        if "u DROP" in statements[0]:
            columns = "bigint PRIMARY KEY, v text)" if is_postgresql else "INT64, v INT64) PRIMARY KEY (id)"
            there.update_ddl([f"CREATE TABLE u (id {columns}", "CREATE CHANGE STREAM su FOR u(v)"]).result(
                300
            )
        written = [statement.format(retention=retention) for statement in statements]
        with pytest.raises(GoogleAPICallError) as caught:
            there.update_ddl(written).result(300)
    assert_refused(translated(caught.value), DefinitionRefused, message, advice)


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize(
    ("code", "message", "error", "advice"),
    [
        (
            grpc.StatusCode.OUT_OF_RANGE,
            EXPIRED,
            RetentionExpired,
            "begin a new lake folder without `start_timestamp`",
        ),
        (grpc.StatusCode.NOT_FOUND, "Change Stream not found: s", SourceNotFound, "was dropped"),
    ],
)
def test_refusal_that_the_emulator_never_gives(
    dialect: Dialect, code: grpc.StatusCode, message: str, error: type[SourceError], advice: str
) -> None:
    """Expired records and a stream that is dropped during the read raise different errors."""
    with fake_server(Answer((), code, message)) as server:
        client = SpannerClient(server.settings(dialect=dialect.value))
        with pytest.raises(SourceError) as caught:
            client.fetch(change_stream_query("s", "token", 1, 2, 1000, client.read_function))
        client.close()
    assert_refused(caught.value, error, message, advice)
