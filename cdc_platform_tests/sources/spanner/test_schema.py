from dataclasses import replace

import pytest

from cdc_platform.errors import (
    DialectMismatch,
    SettingError,
    SourceNotFound,
    StreamWatchesNothing,
)
from cdc_platform.model.schema.table_schema import TableSchema, spark_type
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.schema import StreamDescription, describe_stream, retention_s
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform.sources.spanner.spanner_settings import Dialect, SpannerSettings
from cdc_platform_tests.servers.bank import BankSettings, create_instance, open_client
from cdc_platform_tests.sources.spanner.fake_server import Answer, Plain, fake_server

DDL = (
    """CREATE TABLE wide (b STRING(9), a INT64 NOT NULL, n NUMERIC, j JSON, tags ARRAY<STRING(MAX)>,
  doubled INT64 AS (a * 2) STORED, k2 INT64 NOT NULL) PRIMARY KEY (k2, a)""",
    "CREATE TABLE plain (id INT64, note STRING(MAX), hidden STRING(MAX)) PRIMARY KEY (id)",
    "CREATE SCHEMA shop",
    "CREATE TABLE shop.orders (id INT64) PRIMARY KEY (id)",
    "CREATE VIEW ids SQL SECURITY INVOKER AS SELECT plain.id FROM plain",
    "CREATE CHANGE STREAM everything FOR ALL OPTIONS (retention_period = '36h')",
    "CREATE CHANGE STREAM partly FOR wide, plain(note) OPTIONS (value_capture_type = 'NEW_ROW')",
    "CREATE CHANGE STREAM keys FOR plain()",
    "CREATE CHANGE STREAM nothing",
)


@pytest.fixture(scope="module")
def settings(emulator: str) -> SpannerSettings:
    """A database with one change stream of each kind."""
    return create_database(emulator, "streams", DDL)


def create_database(host: str, name: str, ddl: tuple[str, ...], **options: object) -> SpannerSettings:
    """Return settings of a new database."""
    bank = BankSettings(host, database=name)
    with open_client(bank) as client:
        create_instance(bank, client)
        instance = client.instance(bank.instance)
        instance.database(name, **options, ddl_statements=() if options else ddl).create().result(300)
    return SpannerSettings(bank.project, bank.instance, name, "everything", emulator_host=host)


def describe(settings: SpannerSettings, **changes: str) -> StreamDescription:
    """Return the description of a stream of the database."""
    return describe_stream(SpannerClient(replace(settings, **changes)))  # type: ignore[arg-type] # texts


def columns(description: StreamDescription) -> dict[str, list[str]]:
    """Return the names of the watched columns by table; those of the key end with a star."""
    return {table.name: _names(table) for table in description.tables}


def _names(table: TableSchema) -> list[str]:
    return [column.name + "*" * column.is_primary_key for column in table.columns]


@pytest.mark.integration
def test_stream_of_all_tables(settings: SpannerSettings) -> None:
    """A stream for all watches every table with every column, except generated ones outside the key."""
    description = describe(settings)

    assert columns(description) == {
        "wide": ["k2*", "a*", "b", "n", "j", "tags"],  # in the order of the key, not of the table
        "plain": ["id*", "note", "hidden"],
        "shop.orders": ["id*"],
    }
    assert description.generated == {"wide": ("doubled",)}
    assert (description.dialect, description.retention_s) == ("googlesql", 36 * 3600)
    assert description.value_capture_type.value == "OLD_AND_NEW_VALUES"


@pytest.mark.integration
def test_stream_of_some_columns(settings: SpannerSettings) -> None:
    """Keys are always watched, other columns only if the stream names them or their whole table."""
    some, keys = describe(settings, change_stream="partly"), describe(settings, change_stream="keys")

    assert columns(some) == {"plain": ["id*", "note"], "wide": ["k2*", "a*", "b", "n", "j", "tags"]}
    assert some.unwatched == {"plain": ("hidden",), "shop.orders": ("id",)}  # without the view
    assert columns(keys) == {"plain": ["id*"]}
    assert some.value_capture_type.value == "NEW_ROW"


@pytest.mark.integration
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"change_stream": "unknown"}, SourceNotFound, "There are: everything, keys, nothing, partly"),
        ({"change_stream": 'a"`b'}, SourceNotFound, "There are: "),
        ({"change_stream": "nothing"}, StreamWatchesNothing, "ALTER CHANGE STREAM nothing SET FOR ALL"),
        ({"database": "unknown"}, SourceNotFound, "databases/unknown"),
        ({"instance": "unknown"}, SourceNotFound, "instances/unknown"),
        ({"dialect": "postgresql"}, DialectMismatch, "uses googlesql, but `dialect` says postgresql"),
    ],
)
def test_wrong_setting_is_explained(
    settings: SpannerSettings, changes: dict[str, str], error: type[Exception], message: str
) -> None:
    """A setting that does not fit the database is an error that lists the choices and says what to do."""
    with pytest.raises(error, match=message):
        describe(settings, **changes)


POSTGRESQL_DDL = (
    """CREATE TABLE wide (b varchar(9), a bigint NOT NULL, n numeric, j jsonb, tags text[],
  "K2" bigint NOT NULL,
  doubled bigint GENERATED ALWAYS AS (a * 2) STORED, at timestamptz, seen spanner.commit_timestamp,
  f4 real, f8 double precision, d date, raw bytea, ok boolean, PRIMARY KEY ("K2", a))""",
    'CREATE TABLE "Plain Table" (id bigint PRIMARY KEY, "Note" text, hidden text)',
    "CREATE SCHEMA shop",
    "CREATE TABLE shop.orders (id bigint PRIMARY KEY)",
    "CREATE VIEW ids SQL SECURITY INVOKER AS SELECT o.id FROM shop.orders o",
    "CREATE CHANGE STREAM everything FOR ALL WITH (retention_period = '36h')",
    """CREATE CHANGE STREAM "Partly" FOR wide, "Plain Table"("Note")
  WITH (value_capture_type = 'NEW_ROW')""",
    'CREATE CHANGE STREAM keys FOR "Plain Table"()',
    "CREATE CHANGE STREAM nothing",
)


@pytest.fixture(scope="module")
def postgresql(emulator: str) -> SpannerSettings:
    """A database of the other dialect with one change stream of each kind."""
    from google.cloud.spanner_admin_database_v1 import DatabaseDialect

    settings = create_database(emulator, "pg-streams", (), database_dialect=DatabaseDialect.POSTGRESQL)
    bank = BankSettings(emulator, database="pg-streams")
    with open_client(bank) as client:
        client.instance(bank.instance).database(bank.database).update_ddl(POSTGRESQL_DDL).result(300)
    return settings


@pytest.mark.integration
@pytest.mark.parametrize("dialect", [None, Dialect.POSTGRESQL])
def test_postgresql_stream_of_all_tables(postgresql: SpannerSettings, dialect: Dialect | None) -> None:
    """The dialect is detected or set; `public` has no name, and names keep their case."""
    description = describe_stream(SpannerClient(replace(postgresql, dialect=dialect)))

    wide = ["K2*", "a*", "b", "n", "j", "tags", "at", "seen", "f4", "f8", "d", "raw", "ok"]
    assert columns(description) == {
        "Plain Table": ["id*", "Note", "hidden"],
        "wide": wide,
        "shop.orders": ["id*"],
    }
    assert description.generated == {"wide": ("doubled",)}
    assert (description.dialect, description.retention_s) == ("postgresql", 36 * 3600)
    types = {column.name: spark_type(column.type) for column in description.tables[1].columns}
    assert types == {
        "K2": "bigint",
        "a": "bigint",
        "b": "string",
        "n": "string",
        "j": "string",
        "tags": "array<string>",
        "at": "timestamp",
        "seen": "timestamp",
        "f4": "float",
        "f8": "double",
        "d": "date",
        "raw": "binary",
        "ok": "boolean",
    }


@pytest.mark.integration
def test_postgresql_stream_of_some_columns(postgresql: SpannerSettings) -> None:
    """Streams are found by their exact names, and watch what they name."""
    some, keys = describe(postgresql, change_stream="Partly"), describe(postgresql, change_stream="keys")

    assert columns(some)["Plain Table"] == ["id*", "Note"]
    assert len(columns(some)["wide"]) == 13
    assert some.unwatched == {"Plain Table": ("hidden",), "shop.orders": ("id",)}  # without the view
    assert columns(keys) == {"Plain Table": ["id*"]}
    assert some.value_capture_type.value == "NEW_ROW"


@pytest.mark.integration
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"change_stream": "partly"}, SourceNotFound, "There are: Partly, everything, keys, nothing"),
        ({"change_stream": "nothing"}, StreamWatchesNothing, "ALTER CHANGE STREAM nothing SET FOR ALL"),
        ({"dialect": "googlesql"}, DialectMismatch, "uses postgresql, but `dialect` says googlesql"),
    ],
)
def test_wrong_setting_of_postgresql_is_explained(
    postgresql: SpannerSettings, changes: dict[str, str], error: type[Exception], message: str
) -> None:
    """A setting that does not fit the database is an error that lists the choices and says what to do."""
    with pytest.raises(error, match=message):
        describe(postgresql, **changes)


@pytest.mark.integration
def test_nanosecond_columns_become_text(postgresql: SpannerSettings) -> None:
    """A timestamp whose nanoseconds count is another type, and what is none is refused."""
    description = describe_stream(SpannerClient(replace(postgresql, nanosecond_columns=("wide.at",))))
    types = {column.name: spark_type(column.type) for column in description.tables[1].columns}
    assert (types["at"], types["seen"]) == ("string", "timestamp")

    for name, problem in (("wide.a", "not a timestamp"), ("wide.nope", "unwatched column")):
        wrong = SpannerSource(replace(postgresql, nanosecond_columns=(name,)))
        with pytest.raises(SettingError, match=problem):
            wrong.start_micros()


def test_unknown_dialect_is_refused() -> None:
    """A dialect of a later version is not guessed at."""
    with (
        fake_server(Answer([["COBOL"]])) as server,
        pytest.raises(DialectMismatch, match="uses COBOL, and this version reads googlesql and postgresql"),
    ):
        describe_stream(SpannerClient(server.settings(dialect=None)))


def test_unknown_type_is_named() -> None:
    """A column of a type that this version does not know is described as text, and named."""
    answers = (
        Answer([["GOOGLE_STANDARD_SQL"]]),
        Answer([[False]]),
        Answer([], columns=2),
        Answer([["", "t", True]], columns=3),
        Answer([], columns=3),
        Answer(
            [
                ["", "t", "id", "INT64", "NEVER", "1", "1"],
                ["", "t", "shape", "ARRAY<HOLOGRAM>", "NEVER", "2", None],
            ],
            columns=7,
        ),
    )
    with fake_server(*answers) as server:
        description = describe_stream(SpannerClient(server.settings()))

    assert [spark_type(column.type) for column in description.tables[0].columns] == [
        "bigint",
        "array<string>",
    ]
    (column,) = description.tables[0].unknown_columns
    assert (column.name, column.type.text) == ("shape", "ARRAY<HOLOGRAM>")


def answers_with_keyless(*others: Plain) -> tuple[Answer, ...]:
    """Return the answers about a stream of a table without a key column, and of others."""
    return (
        Answer([["GOOGLE_STANDARD_SQL"]]),
        Answer([[False]]),
        Answer([], columns=2),
        Answer([["", "one", True], *(["", other, True] for other in others)], columns=3),
        Answer([], columns=3),
        Answer(
            [["", "t", "id", "INT64", "NEVER", "1", "1"], ["", "one", "v", "INT64", "NEVER", "1", None]],
            columns=7,
        ),
    )


def test_tables_without_a_key_column_are_listed_separately() -> None:
    """They are none that a lake can have."""
    with fake_server(*answers_with_keyless("t")) as server:
        description = describe_stream(SpannerClient(server.settings()))

    assert description.keyless == ("one",)
    assert [table.name for table in description.tables] == ["t"]


def test_a_stream_of_tables_without_a_key_column_is_refused() -> None:
    """The error names the tables that the stream watches."""
    with (
        fake_server(*answers_with_keyless()) as server,
        pytest.raises(StreamWatchesNothing, match="no table except those without a key column: one"),
    ):
        describe_stream(SpannerClient(server.settings()))


def test_filters_are_among_the_options() -> None:
    """Options that leave changes out are part of the description, from which the findings come."""
    answers = (
        Answer([["GOOGLE_STANDARD_SQL"]]),
        Answer([[False]]),
        Answer([["exclude_ttl_deletes", "true"], ["exclude_insert", "false"]], columns=2),
        Answer([["", "t", True]], columns=3),
        Answer([], columns=3),
        Answer([["", "t", "id", "INT64", "NEVER", "1", "1"]], columns=7),
    )
    with fake_server(*answers) as server:
        description = describe_stream(SpannerClient(server.settings()))

    assert description.options == {"exclude_ttl_deletes": "true", "exclude_insert": "false"}


@pytest.mark.parametrize(
    ("text", "seconds"), [("7d", 604_800), ("36h", 129_600), ("90m", 5400), (None, 604_800), ("x", 604_800)]
)
def test_retention_in_seconds(text: str | None, seconds: int) -> None:
    """A retention is a number with a unit; without one it is Spanner's default."""
    assert retention_s(text) == seconds
