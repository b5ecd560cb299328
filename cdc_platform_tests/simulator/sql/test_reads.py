"""Plain reads of the simulator by the stock client: any moment, any part."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.cloud.spanner_v1 import param_types

from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import Dialect, SimulatorSettings
from cdc_platform_tests.sources.spanner.servers import connected

pytestmark = pytest.mark.integration

PRELOADED = 3000


@pytest.fixture(scope="module", params=[*Dialect])
def simulator(request: pytest.FixtureRequest) -> Iterator[Simulator]:
    """A simulator of either dialect."""
    settings = SimulatorSettings(
        dialect=request.param, accounts=40, rate=50, history_s=5, preloaded_transfers=PRELOADED
    )
    with Simulator(settings) as running:
        yield running


@pytest.fixture(scope="module")
def database(simulator: Simulator) -> Iterator[Any]:
    """Its database, as the stock client has it."""
    with connected(simulator) as connection:
        yield connection


def truth(simulator: Simulator, table: int, micros: int) -> list[tuple[Any, ...]]:
    """Return the rows that a table really had, in the order of its key."""
    return [row for _, row in sorted(simulator.history.rows_at(table, micros).items())]


def test_tables_at_moments(simulator: Simulator, database: Any) -> None:
    """An exact read returns the rows of its moment, in the order of the key."""
    now = simulator.database.now_micros()
    for micros in (simulator.origin_micros + 700_000, now - 2_000_000, now):
        with database.snapshot(read_timestamp=to_datetime(micros)) as reading:
            rows = list(reading.execute_sql("SELECT account_id, balance FROM accounts ORDER BY account_id"))
        assert rows
        assert [[row[0], row[2]] for row in truth(simulator, 0, micros)] == rows


def test_parts_of_a_table_are_the_table(simulator: Simulator, database: Any) -> None:
    """Partitions of a query, and of a read, together give the rows of one moment, each once."""
    from google.cloud.spanner import KeySet

    batch = database.batch_snapshot()
    queries = list(batch.generate_query_batches("SELECT transfer_id, amount FROM transfers"))
    reads = list(batch.generate_read_batches("transfers", ["transfer_id", "amount"], KeySet(all_=True)))
    queried, read = ([row for part in parts for row in batch.process(part)] for parts in (queries, reads))
    batch.close()

    assert len(queries) > 1
    assert len(queried) >= PRELOADED
    assert queried == read == sorted(queried)
    assert len(queried) == len({identifier for identifier, _ in queried})
    assert {row[0] for row in truth(simulator, 1, simulator.origin_micros)} <= {row[0] for row in queried}


def test_ranges_limits_and_sums(simulator: Simulator, database: Any) -> None:
    """Conditions with parameters, order, limit and offset choose rows; sums and counts are computed."""
    marks = ("@p1", "@p2") if simulator.settings.dialect is Dialect.GOOGLESQL else ("$1", "$2")
    names = {"p1": 5, "p2": 30}
    types = dict.fromkeys(names, param_types.INT64)
    at = simulator.database.now_micros()
    keys = [row[0] for row in truth(simulator, 0, at) if 5 < row[0] <= 30]
    condition = f"account_id > {marks[0]} AND account_id <= {marks[1]}"
    with database.snapshot(read_timestamp=to_datetime(at), multi_use=True) as reading:
        some = reading.execute_sql(
            f"SELECT account_id FROM accounts WHERE {condition} ORDER BY account_id DESC LIMIT 3 OFFSET 1",
            names,
            types,
        )
        assert [[key] for key in keys[::-1][1:4]] == list(some)
        whole = list(reading.execute_sql(f"SELECT * FROM accounts WHERE {condition}", names, types))
        assert keys == [row[0] for row in whole]
        aliased = (
            f"SELECT a.account_id FROM accounts AS a WHERE {condition.replace('account_id', 'a.account_id')}"
        )
        assert [[key] for key in keys] == list(reading.execute_sql(aliased, names, types))
        sums = reading.execute_sql("SELECT SUM(balance), COUNT(*) FROM accounts")
        assert [[40_000, len(truth(simulator, 0, at))]] == list(sums)


def test_reads_by_key(simulator: Simulator, database: Any) -> None:
    """Keys and ranges of keys choose the rows of a read."""
    from google.cloud.spanner import KeyRange, KeySet

    at = simulator.database.now_micros()
    keys = [row[0] for row in truth(simulator, 0, at)]
    chosen = KeySet(keys=[[keys[0]], [-1]], ranges=[KeyRange(start_open=[keys[4]], end_closed=[keys[8]])])
    with database.snapshot(read_timestamp=to_datetime(at)) as reading:
        rows = list(reading.read("accounts", ["account_id"], chosen))

    assert [[key] for key in (keys[0], *keys[5:9])] == rows


def test_versions_expire(simulator: Simulator, database: Any) -> None:
    """A moment before the history, or before the versions that are kept, cannot be read."""
    from google.api_core.exceptions import FailedPrecondition

    before = to_datetime(simulator.origin_micros - 1)
    with (
        database.snapshot(read_timestamp=before) as reading,
        pytest.raises(FailedPrecondition, match="has exceeded the maximum timestamp staleness"),
    ):
        list(reading.execute_sql("SELECT account_id FROM accounts"))


def test_writes_are_refused(database: Any) -> None:
    """Only the simulator itself writes."""
    from google.api_core.exceptions import MethodNotImplemented

    batch = database.batch()
    with pytest.raises(MethodNotImplemented, match="only writer"), batch as writing:
        writing.insert("accounts", ["account_id"], [[1]])
