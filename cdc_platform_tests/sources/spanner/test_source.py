from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest

from cdc_platform.errors import SettingError, SourceNotFound, SourceUnreachable, StreamWatchesNothing
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.stream.read_windows import ReadPlan, ReadWindow
from cdc_platform.sources.spanner.copying import copy_reader
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.emulator_fixtures import BankStream, make_bank
from cdc_platform_tests.servers.bank import open_database
from cdc_platform_tests.sources.spanner.fake_server import Answer, fake_server

SECOND = 1_000_000
HOUR = 3600 * SECOND

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def stream(emulator: str) -> BankStream:
    """A bank without writes."""
    return make_bank(emulator, "still-bank")


@pytest.fixture
def source(stream: BankStream) -> Iterator[SpannerSource]:
    """A source of its change stream."""
    source = SpannerSource(stream.spanner)
    yield source
    source.close()


def starting(source: SpannerSource, micros: int) -> SpannerSource:
    """Return the source with another start."""
    return SpannerSource(replace(source.settings, start_timestamp=to_rfc3339(micros)))


def test_start_is_the_present_of_the_source(source: SpannerSource) -> None:
    """Without a setting a pipeline begins now, by the source's clock."""
    before = source.clock_micros()

    assert before <= source.start_micros() <= source.clock_micros()


@pytest.mark.parametrize(("windows", "seconds"), [(65, 1), (1, 16)])
def test_long_and_many_windows_are_for_spark(windows: int, seconds: int) -> None:
    """Nothing is asked of Spanner before it is clear who reads."""
    source = SpannerSource(SpannerSettings("project", "instance", "database", "stream"))
    plan = ReadPlan(tuple(ReadWindow(f"token {number}", 0, seconds * SECOND) for number in range(windows)))
    assert source.read_locally(1, plan, max_s=15) is None


def test_start_may_be_set(source: SpannerSource) -> None:
    """A start that the stream still has is taken."""
    start = source.clock_micros()

    assert starting(source, start).start_micros() == start


@pytest.mark.parametrize("hours", [1, 10 * 24])
def test_start_before_the_stream_existed_is_refused(source: SpannerSource, hours: int) -> None:
    """A start before the stream was created is an error of the setting, which names the earliest start."""
    start = source.clock_micros() - hours * HOUR

    with pytest.raises(
        SettingError, match=r"before the change stream existed.*stream's records begin at 20.*T"
    ):
        starting(source, start).start_micros()


def test_a_stream_that_watches_nothing_is_refused_at_the_start_only(emulator: str) -> None:
    """A new pipeline would have no table; an existing one reads what the stream has from before."""
    bank = make_bank(emulator, "suspended-bank")
    with open_database(bank.bank) as database:
        database.update_ddl([f"ALTER CHANGE STREAM {bank.bank.change_stream} DROP FOR ALL"]).result(300)
    with closing(SpannerSource(bank.spanner)) as suspended:
        assert suspended.clock_micros() > 0
        for begin in (suspended.start_micros, suspended.list_tables):
            with pytest.raises(StreamWatchesNothing, match="Set what it watches"):
                begin()


def test_start_in_the_future_is_refused(source: SpannerSource) -> None:
    """A start that has not been yet is an error of the setting."""
    with pytest.raises(SettingError, match="lies in the future"):
        starting(source, source.clock_micros() + HOUR).start_micros()


def test_rows_equal_a_read_of_the_stock_client(source: SpannerSource, stream: BankStream) -> None:
    """A table at a timestamp is what the stock client reads."""
    table = pa.Table.from_batches(source.rows_at("accounts", source.clock_micros()))

    with open_database(stream.bank) as database, database.snapshot() as reading:
        columns = "account_id, owner, balance, opened_on, labels"
        rows = [list(row) for row in reading.execute_sql(f"SELECT {columns} FROM accounts ORDER BY 1")]
    assert [list(row.values()) for row in table.to_pylist()] == rows
    assert table.schema == pa.schema(
        [
            ("account_id", pa.int64()),
            ("owner", pa.string()),
            ("balance", pa.int64()),
            ("opened_on", pa.date32()),
            ("labels", pa.list_(pa.string())),
        ],
    )


def test_rows_of_the_past(source: SpannerSource, stream: BankStream) -> None:
    """A table is read as it was at the timestamp, without later changes."""
    before = source.clock_micros()
    with open_database(stream.bank) as database, database.batch() as batch:
        batch.update("accounts", ("account_id", "owner"), [(0, "changed")])

    owners = [
        next(iter(source.rows_at("accounts", micros)))["owner"][0].as_py()
        for micros in (before, source.clock_micros())
    ]

    assert owners == ["Owner 0", "changed"]


def test_table_that_is_not_watched_is_refused(source: SpannerSource) -> None:
    """Only watched tables can be read."""
    with pytest.raises(SourceNotFound, match="does not watch the table `a/b`"):
        source.rows_at("a/b", source.clock_micros())


def test_interrupted_read_of_a_table_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were given before a failure are not given again."""
    import grpc  # type: ignore[import-untyped] # ships no types

    from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema
    from cdc_platform.sources.spanner.client.client import SpannerClient

    monkeypatch.setattr(copy_reader, "ROWS_PER_BATCH", 2)
    table = TableSchema(
        "t", (Column("id", ColumnType("INT64"), True, 1), Column("v", ColumnType("STRING"), False, 2))
    )
    rows = [[str(number), "v"] for number in range(5)]
    broken = Answer(rows[:3], grpc.StatusCode.UNAVAILABLE, columns=2, has_tokens=True)
    with fake_server(broken, Answer(rows[3:], columns=2, has_tokens=True)) as server:
        actual = pa.Table.from_batches(copy_reader.rows_at(SpannerClient(server.settings()), table, 1))

    assert actual["id"].to_pylist() == [0, 1, 2, 3, 4]


def test_source_that_is_down_is_reported(stream: BankStream) -> None:
    """A source without an answer raises after a bounded time; making its object never does."""
    source = SpannerSource(replace(stream.spanner, emulator_host="127.0.0.1:1", max_attempts=2))

    with pytest.raises(SourceUnreachable):
        source.clock_micros()
