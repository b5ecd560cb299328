"""Two change streams of one database: each numbers the records of a transaction itself."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.sources.spanner.stream.window_reader import read_window
from cdc_platform_tests.servers.bank import BankSettings, create_instance, open_client
from cdc_platform_tests.support.history import RawRow

pytestmark = pytest.mark.integration

DDL = (
    "CREATE TABLE one (id INT64) PRIMARY KEY (id)",
    "CREATE TABLE other (id INT64) PRIMARY KEY (id)",
    "CREATE CHANGE STREAM of_one FOR one",
    "CREATE CHANGE STREAM of_both FOR one, other",
)


def rows_of(client: SpannerClient, window: ReadWindow) -> list[RawRow]:
    """Return what a window gives."""
    return [row for batch in read_window(client, 1, window) for row in batch.to_pylist()]


def data_of(settings: SpannerSettings, start: int, end: int) -> Iterator[RawRow]:
    """Yield the data change records of a stream's first partitions."""
    client = SpannerClient(settings)
    for row in rows_of(client, ReadWindow(ROOT_TOKEN, start - 1, end)):
        for child in row["child_partitions"] or []:
            rows = rows_of(client, ReadWindow(child["token"], start - 1, end))
            yield from (record for record in rows if record["kind"] == "data_change")
    client.close()


def test_counts_are_those_of_the_stream(still_emulator: str) -> None:
    """A transaction on two tables has one record in the stream of one of them, two in that of both."""
    bank = BankSettings(still_emulator, database="two-streams")
    settings = SpannerSettings(
        bank.project, bank.instance, bank.database, "of_one", emulator_host=still_emulator
    )
    with open_client(bank) as client:
        create_instance(bank, client)
        database = client.instance(bank.instance).database(bank.database, ddl_statements=DDL)
        database.create().result(300)
        start = SpannerClient(settings).clock_micros()
        with database.batch() as batch:
            batch.insert("one", ("id",), [(1,)])
            batch.insert("other", ("id",), [(1,)])
    end = SpannerClient(settings).clock_micros()
    counts = {
        stream: [
            row["number_of_records_in_transaction"]
            for row in data_of(replace(settings, change_stream=stream), start, end)
        ]
        for stream in ("of_one", "of_both")
    }
    assert counts == {"of_one": [1], "of_both": [2, 2]}
