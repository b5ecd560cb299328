"""Cutting tables into chunks that hold every row once, on the emulator."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.copying.copy_chunks import Chunk
from cdc_platform.sources.spanner.copying.copy_plan import CopyPlanner, OrderedKeyColumn, splittable
from cdc_platform.sources.spanner.copying.copy_reader import read_chunk
from cdc_platform.sources.spanner.copying.snapshot import clock_micros
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.servers.bank import BankSettings, create_instance, open_client, open_database

pytestmark = pytest.mark.integration

DDL: Final = (
    "CREATE TABLE numbers (a INT64, b STRING(9), v INT64) PRIMARY KEY (a, b DESC)",
    "CREATE TABLE moments (a TIMESTAMP, v INT64) PRIMARY KEY (a DESC)",
    "CREATE TABLE flags (a BOOL, b INT64) PRIMARY KEY (a, b)",
    "CREATE TABLE nothing (a INT64) PRIMARY KEY (a)",
)
MOMENTS: Final = [None, *(f"2026-01-0{day}T00:00:00.00000000{nano}Z" for day in (1, 2) for nano in range(4))]
ROWS: Final[dict[str, list[tuple[Any, ...]]]] = {
    "numbers": [(a, b, 1) for a in (None, -5, 0, 7) for b in (None, "", "a", "é")],
    "moments": [(moment, place) for place, moment in enumerate(MOMENTS)],
    "flags": [(a, b) for a in (None, False, True) for b in range(3)],
    "nothing": [],
}


def with_nanoseconds(schema: TableSchema) -> TableSchema:
    """Return a table whose first column keeps its nanoseconds, as a key of them must."""
    first, *columns = schema.columns
    return replace(schema, columns=(replace(first, type=first.type.with_nanoseconds()), *columns))


SCHEMAS: Final = {
    "numbers": table("numbers", {"a": "INT64", "b": "STRING(9)"}, {"v": "INT64"}),
    "moments": with_nanoseconds(table("moments", {"a": "TIMESTAMP"}, {"v": "INT64"})),
    "flags": table("flags", {"a": "BOOL", "b": "INT64"}, {}),
    "nothing": table("nothing", {"a": "INT64"}, {}),
}


@pytest.fixture(scope="module")
def settings(emulator: str) -> SpannerSettings:
    """A database with tables whose keys are NULL, descending, of several columns, or cannot be bound."""
    bank = BankSettings(emulator, database="chunks")
    with open_client(bank) as client:
        create_instance(bank, client)
        client.instance(bank.instance).database(bank.database, DDL).create().result(300)
    with open_database(bank) as database, database.batch() as batch:
        for name, rows in ((name, rows) for name, rows in ROWS.items() if rows):
            batch.insert(name, [column.name for column in SCHEMAS[name].columns], rows)
    return SpannerSettings(bank.project, bank.instance, bank.database, "none", emulator_host=emulator)


@pytest.fixture
def client(settings: SpannerSettings) -> Iterator[SpannerClient]:
    """A client of this database."""
    client = SpannerClient(settings)
    yield client
    client.close()


def read_all(client: SpannerClient, schema: TableSchema, chunks: tuple[str, ...], micros: int) -> list[int]:
    """Return how many rows each chunk holds, after making sure that together they hold every row once."""
    rows_read: Counter[str] = Counter()
    sizes = []
    for text in chunks:
        rows = [
            row
            for batch in read_chunk(client, schema, Chunk.from_text(text, micros))
            for row in batch.to_pylist()
        ]
        sizes.append(len(rows))
        rows_read.update(map(repr, rows))
    assert len(ROWS[schema.name]) == len(rows_read) == rows_read.total()
    return sizes


@pytest.mark.parametrize(
    ("name", "chunk_rows", "expected"),
    [
        ("numbers", 1, [1] * 16 + [0]),  # every key is a bound, NULL too
        ("numbers", 5, [5, 5, 5, 1]),  # bounds within and between values of the first column
        ("numbers", 100, [16]),  # smaller than a chunk
        ("moments", 1, [1] * 9 + [0]),  # descending, NULL last, nanoseconds apart
        ("moments", 4, [4, 4, 1]),
        ("flags", 1, [9]),  # a key that cannot be bound is not cut
        ("nothing", 1, []),  # an empty table has no chunk
    ],
)
def test_ranges_of_the_key_hold_every_row_once(
    client: SpannerClient, name: str, chunk_rows: int, expected: list[int]
) -> None:
    """Chunks by key have the asked size, and no row lies in two of them or in none."""
    micros = clock_micros(client) - 1
    chunks = CopyPlanner(client, micros).chunks(SCHEMAS[name], chunk_rows)
    assert expected == read_all(client, SCHEMAS[name], chunks, micros)


def test_partition_tokens_hold_every_row_once(settings: SpannerSettings) -> None:
    """With Data Boost all chunks are partition tokens, those of several tables of one transaction."""
    boosted = SpannerClient(replace(settings, data_boost=True))
    micros = clock_micros(boosted) - 1
    planner = CopyPlanner(boosted, micros)
    plans = {name: planner.chunks(SCHEMAS[name], 1) for name in ("numbers", "moments")}
    partitions = [Chunk.from_text(text, micros).partition for chunks in plans.values() for text in chunks]
    assert len({(part.session, part.transaction) for part in partitions if part is not None}) == 1
    assert None not in partitions
    for name, chunks in plans.items():
        read_all(boosted, SCHEMAS[name], chunks, micros)
    boosted.close()


def test_a_copy_shows_the_past(client: SpannerClient, settings: SpannerSettings) -> None:
    """Rows that came after the moment are not in it, and rows that went are."""
    micros = clock_micros(client) - 1
    chunks = CopyPlanner(client, micros).chunks(SCHEMAS["numbers"], 3)
    bank = BankSettings(settings.emulator_host or "", database=settings.database)
    with open_database(bank) as database:
        with database.batch() as batch:
            batch.insert("numbers", ("a", "b", "v"), [(99, "new", 1)])
        try:
            read_all(client, SCHEMAS["numbers"], chunks, micros)
        finally:
            from google.cloud.spanner import KeySet

            with database.batch() as batch:
                batch.delete("numbers", KeySet(keys=[[99, "new"]]))


def test_only_the_first_columns_that_can_be_bound_are_cut_by() -> None:
    """A key column whose values are not texts ends what a chunk can be bounded by."""
    schema = table("t", {"a": "INT64", "b": "FLOAT64", "c": "DATE"}, {})
    columns = [OrderedKeyColumn(column) for column in schema.columns]
    assert splittable(columns) == (columns[0],)
