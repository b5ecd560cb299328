"""Databases of both dialects on the emulator, from their change streams to tables that equal them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.pipeline.checks.reconciliation import reconcile_tables
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.spanner.spanner_settings import Dialect, SpannerSettings
from cdc_platform_tests.servers.bank import BankSettings, create_instance, open_client
from cdc_platform_tests.support.pipelines import quarantined_rows, rows_of
from cdc_platform_tests.support.workloads.bank_databases import catch_up, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Script:
    """Tables with a column of every type that the emulator hands on as it is, and transactions on them."""

    definitions: tuple[str, ...]
    transactions: tuple[tuple[str, ...], ...]


GOOGLESQL: Final = Script(
    (
        """CREATE TABLE wide (i INT64, s STRING(20), b BOOL, f FLOAT64, g FLOAT32, n NUMERIC, x BYTES(9),
  d DATE, t TIMESTAMP, j JSON, ai ARRAY<INT64>, as_ ARRAY<STRING(MAX)>, an ARRAY<NUMERIC>, ad ARRAY<DATE>)
  PRIMARY KEY (i, s)""",
        """CREATE TABLE keyed (b BOOL, f FLOAT64, n NUMERIC, x BYTES(9), d DATE, t TIMESTAMP, v INT64)
  PRIMARY KEY (t, b, f, n, x, d)""",
        "CREATE CHANGE STREAM s FOR ALL",
    ),
    (
        (
            """INSERT INTO wide (i, s, b, f, g, n, x, d, t, j, ai, as_, an, ad) VALUES
  (9007199254740993, 'ünï', true, 0.1, 3.14, NUMERIC '99999999999999999999999999999.999999999', b'\\x00\\xff',
  '0001-01-01', '2024-02-29T23:59:59Z', JSON '{"a": [1, null]}', [9007199254740993], ['a', ''],
  [NUMERIC '1.5'], []),
  (1, 'k', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (2, 'k', false, 1e300,
  1.5, NUMERIC '-0.000000001', b'', '9999-12-31', '1600-01-01T00:00:00Z', JSON 'null', [], [], [],
  [DATE '2024-02-29'])""",
            """INSERT INTO keyed (b, f, n, x, d, t, v) VALUES
  (true, 0.1, NUMERIC '1.5', b'\\x00', '2024-02-29', '2024-02-29T01:02:03Z', 1),
  (NULL, -1e300, NUMERIC '-0.000000001', b'', '0001-01-01', '1600-01-01T00:00:00Z', 2)""",
        ),
        (
            "UPDATE wide SET b = true, f = -0.5, x = b'q' WHERE i = 1",
            "UPDATE wide SET n = NULL, j = JSON '[]' WHERE i = 2",
            "UPDATE keyed SET v = 3 WHERE b",
        ),
        ("DELETE FROM wide WHERE i > 2", "DELETE FROM keyed WHERE b IS NULL"),
    ),
)
POSTGRESQL: Final = Script(
    (
        """CREATE TABLE wide (i bigint, "S" varchar(20), b boolean, f double precision, g real, n numeric,
  x bytea, d date, t timestamptz, j jsonb, ai bigint[], as_ text[], an numeric[], ad date[],
  PRIMARY KEY (i, "S"))""",
        """CREATE TABLE "Keyed" (b boolean, f double precision, x bytea, d date, t timestamptz, v bigint,
  PRIMARY KEY (t, b, f, x, d))""",
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.orders (id bigint PRIMARY KEY, note text)",
        "CREATE CHANGE STREAM s FOR ALL WITH (value_capture_type = 'NEW_VALUES')",
    ),
    (
        (
            """INSERT INTO wide (i, "S", b, f, g, n, x, d, t, j, ai, as_, an, ad) VALUES
  (9007199254740993, 'ünï', true, 0.1, 3.14,
  '123456789012345678901234567890123456789012345678901.1234567890123456789', '\\x00ff', '0001-01-01',
  '2024-02-29T23:59:59Z', '{"b": 1.50, "a": [1, null]}', ARRAY[9007199254740993], ARRAY['a', ''],
  ARRAY[1.50], ARRAY['2024-02-29'::date])""",
            """INSERT INTO wide (i, "S", n) VALUES (1, 'k', 'NaN'), (1, 'K', 1.50)""",
            """INSERT INTO "Keyed" (b, f, x, d, t, v) VALUES
  (true, 0.1, '\\x00', '2024-02-29', '2024-02-29T01:02:03Z', 1),
  (false, -1e300, '', '0001-01-01', '1600-01-01T00:00:00Z', 2)""",
            "INSERT INTO shop.orders (id, note) VALUES (1, 'one'), (2, 'two')",
        ),
        (
            """UPDATE wide SET b = true, f = -0.5, x = '\\x71', j = '[]' WHERE "S" = 'k'""",
            """UPDATE wide SET n = NULL WHERE "S" = 'K'""",
            'UPDATE "Keyed" SET v = 3 WHERE b',
            "UPDATE shop.orders SET note = NULL WHERE id = 1",
        ),
        (
            "DELETE FROM wide WHERE i > 2",
            'DELETE FROM "Keyed" WHERE NOT b',
            "DELETE FROM shop.orders WHERE id = 2",
        ),
    ),
)
SCRIPTS: Final = {Dialect.GOOGLESQL: GOOGLESQL, Dialect.POSTGRESQL: POSTGRESQL}


def create(bank: BankSettings, dialect: Dialect) -> None:
    """Make the database of a dialect with its tables and its stream."""
    from google.cloud.spanner_admin_database_v1 import DatabaseDialect

    is_postgresql = dialect is Dialect.POSTGRESQL
    options = {"database_dialect": DatabaseDialect.POSTGRESQL} if is_postgresql else {}
    with open_client(bank) as client:
        create_instance(bank, client)
        database = client.instance(bank.instance).database(bank.database, **options)
        database.create().result(300)
        database.update_ddl(SCRIPTS[dialect].definitions).result(300)


@pytest.mark.parametrize("dialect", list(Dialect))
def test_tables_equal_the_source_in_every_dialect(
    spark: "SparkSession", session_lake: LakeSettings, still_emulator: str, dialect: Dialect
) -> None:
    """A value of any type arrives as the source has it, in keys too; nothing is quarantined."""
    bank = BankSettings(still_emulator, database=f"types-{dialect.value}")
    create(bank, dialect)
    source = SpannerSettings(bank.project, bank.instance, bank.database, "s", emulator_host=still_emulator)
    pipeline = open_pipeline(PipelineSettings(f"types_{dialect.value}", source, session_lake))
    catch_up(pipeline, spark)
    first, *others = SCRIPTS[dialect].transactions
    for transactions in ([first], others):
        for statements in transactions:
            write(bank, statements)
        catch_up(pipeline, spark)
        assert {row["reason"] for row in quarantined_rows(pipeline)} == set()
        cut = newest_cut(pipeline.lake)
        assert cut is not None
        reconciliations, _ = reconcile_tables(pipeline, cut)
        assert [reconciliation for reconciliation in reconciliations if not reconciliation.is_equal] == []
    pipeline.source.close()
    expected: dict[Dialect, dict[str, list[tuple[Any, ...]]]] = {
        Dialect.GOOGLESQL: {"wide": [(1, "k"), (2, "k")]},
        Dialect.POSTGRESQL: {"wide": [(1, "K"), (1, "k")], "shop.orders": [(1, None)]},
    }
    for table, rows in expected[dialect].items():
        assert rows == sorted(tuple(row.values())[:2] for row in rows_of(pipeline, table))
