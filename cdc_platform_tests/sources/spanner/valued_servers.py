"""The same servers with a table of awkward values, which the two write differently into their records."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import Dialect, SimulatorSettings
from cdc_platform_tests.sources.spanner.servers import (
    CHANGE_STREAM,
    SIMULATOR,
    Server,
    connected,
    new_on_emulator,
)

TABLE: Final = "all_types"
_COLUMNS: Final = ("id", "c_timestamp", "c_float64", "a_int64")
_ROWS: Final[tuple[tuple[object, ...], ...]] = (
    (1, "2024-02-29T01:02:03.123456Z", float("nan"), [1, None]),
    (2, "0099-02-03T04:05:06Z", float("inf"), []),
    (3, None, float("-inf"), None),
)
_TABLES: Final = {
    Dialect.GOOGLESQL: "(id INT64, c_timestamp TIMESTAMP, c_float64 FLOAT64, a_int64 ARRAY<INT64>) "
    "PRIMARY KEY (id)",
    Dialect.POSTGRESQL: "(id bigint PRIMARY KEY, c_timestamp timestamptz, c_float64 double precision, "
    "a_int64 bigint[])",
}


@contextmanager
def open_valued_simulator(dialect: Dialect) -> Iterator[Server]:
    """Yield a simulator with a column of every type, and rows that expire."""
    settings = SimulatorSettings(
        seed=5, dialect=dialect, accounts=40, rate=60, history_s=8, all_types=True, keep_transfers=20
    )
    with Simulator(settings) as simulator, connected(simulator) as database:
        yield Server(SIMULATOR, dialect, simulator.host, database, simulator.origin_micros, simulator)


@contextmanager
def open_valued_on_emulator(host: str, dialect: Dialect) -> Iterator[Server]:
    """Yield a new database on the emulator with a few such rows."""
    definitions = (
        f"CREATE TABLE {TABLE} {_TABLES[dialect]}",
        f"CREATE CHANGE STREAM {CHANGE_STREAM} FOR ALL",
    )
    with new_on_emulator(host, f"values-{dialect}", dialect, definitions) as server:
        with server.database.batch() as batch:
            batch.insert(TABLE, _COLUMNS, _ROWS)
        yield server
