"""Faults of the simulator, as this platform's reader and the stock client meet them."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from cdc_platform.errors import SourceUnreachable
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.stream.read_windows import ReadWindow, WindowOutcome
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.stream.faults import MAX_FAULTS_IN_A_ROW, Faults, QueryFault
from cdc_platform.simulator.stream.stream import StreamQuery
from cdc_platform.simulator.wire.problems import Refusal
from cdc_platform.simulator.wire.simulator_settings import PASSING_FAULTS, Dialect, Fault, SimulatorSettings
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.query import Query, change_stream_query
from cdc_platform.sources.spanner.stream.window_reader import read_window
from cdc_platform_tests.sources.spanner.servers import Server, open_simulator, spanner_settings

pytestmark = pytest.mark.integration

BREAKS: Final = {
    # fault: what one attempt of ours makes of it
    Fault.UNAVAILABLE: SourceUnreachable,
    Fault.UNAVAILABLE_WITHOUT_TOKENS: SourceUnreachable,
    Fault.RST_STREAM: SourceUnreachable,
    Fault.RST_STREAM_WITHOUT_TOKENS: SourceUnreachable,
    Fault.RESOURCE_EXHAUSTED: SourceUnreachable,
    Fault.DEADLINE_EXCEEDED: SourceUnreachable,
}
RESUMED_BY_STOCK: Final = (
    Fault.UNAVAILABLE,
    Fault.UNAVAILABLE_WITHOUT_TOKENS,
    Fault.RST_STREAM,
    Fault.RST_STREAM_WITHOUT_TOKENS,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A simulator without faults of its own."""
    with open_simulator(Dialect.GOOGLESQL) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[SpannerClient]:
    """Our client of it."""
    assert server.simulator is not None
    spanner_client = SpannerClient(spanner_settings(server.simulator))
    yield spanner_client
    spanner_client.close()


def busy_partition(simulator: Simulator) -> tuple[str, int, int]:
    """Return token, start and end of an ended partition with several records."""
    stream, now = simulator.database.stream, simulator.database.now_micros()
    for partition in simulator.history.tree.live_at(simulator.origin_micros + 3_000_000):
        end = partition.end_micros
        if end is not None and end < now:
            records = [
                item for batch in stream.records(partition, partition.start_micros, end) for item in batch
            ]
            if len(records) > 3:
                return partition.token, partition.start_micros, end
    raise AssertionError("all partitions are idle")


def attempt(client: SpannerClient, server: Server, fault: Fault, after_rows: int = 2) -> int:
    """Return how many rows one attempt of ours gets of a query that a fault befalls."""
    assert server.simulator is not None
    token, start, end = busy_partition(server.simulator)
    server.simulator.inject(fault, token=token, after_rows=after_rows)
    query = change_stream_query(server.simulator.settings.change_stream, token, start, end, 1000)
    return len(list(client.rows(query)))


@pytest.mark.parametrize("fault", BREAKS)
def test_faults_are_our_errors(server: Server, client: SpannerClient, fault: Fault) -> None:
    """Each fault that breaks a query off is the error that says what to do."""
    with pytest.raises(BREAKS[fault]):
        attempt(client, server, fault)
    assert attempt(client, server, Fault.READ_TIMESTAMP) > 3


def test_expired_records_are_lost_for_good() -> None:
    """A partition whose records have expired is refused from then on, for every start that early."""
    faults = Faults(SimulatorSettings())
    faults.demand(Fault.EXPIRED, 1, "token", 0)

    for start in (5, 5, 4):
        with pytest.raises(Refusal, match="too far in the past"):
            faults.fate(StreamQuery(start, None, "token", 1000))
    assert QueryFault() == faults.fate(StreamQuery(6, None, "token", 1000))
    assert QueryFault() == faults.fate(StreamQuery(5, None, "another", 1000))


def test_early_end_is_ok_and_short(server: Server, client: SpannerClient) -> None:
    """A stream may end with OK before its records have come, and without the children."""
    assert attempt(client, server, Fault.EARLY_END) == 2


@pytest.mark.parametrize("fault", [*BREAKS, Fault.EARLY_END])
def test_window_reader_gets_over_them(server: Server, client: SpannerClient, fault: Fault) -> None:
    """A window that breaks off twice has the same records as one that does not."""
    assert server.simulator is not None
    token, start, end = busy_partition(server.simulator)
    window = ReadWindow(token, start - 1, end)
    expected = [batch.to_pylist() for batch in read_window(client, 1, window)]
    server.simulator.inject(fault, times=2, token=token, after_rows=2)

    rows_read = [row for batch in read_window(client, 1, window) for row in batch.to_pylist()]

    assert rows_read == [row for rows in expected for row in rows]
    assert rows_read[-1]["read_window"]["outcome"] == WindowOutcome.FINISHED


@pytest.mark.parametrize("fault", RESUMED_BY_STOCK)
def test_stock_client_resumes(server: Server, fault: Fault) -> None:
    """The stock client continues automatically, and resume tokens prevent duplicate reads."""
    assert server.simulator is not None
    token, start, end = busy_partition(server.simulator)
    bounds = to_datetime(start), to_datetime(end), token
    expected = list(server.read(*bounds))
    server.simulator.inject(fault, token=token, after_rows=3)

    assert expected == list(server.read(*bounds))


def test_stock_client_overflows_at_the_special_read_timestamp(server: Server) -> None:
    """kint64max - 1 does not fit into the stock client's datetime; ours does not ask for it."""
    assert server.simulator is not None
    server.simulator.inject(Fault.READ_TIMESTAMP)

    with pytest.raises((OverflowError, ValueError)):
        next(server.read(to_datetime(server.created_micros)))


def test_a_stalled_partition_is_silent(server: Server, client: SpannerClient) -> None:
    """A stalled query sends nothing until the caller's deadline, and other partitions continue."""
    assert server.simulator is not None
    token, start, end = busy_partition(server.simulator)
    server.simulator.inject(Fault.STALLED, token=token, after_rows=1)
    query = change_stream_query(server.simulator.settings.change_stream, token, start, end, 100)

    with pytest.raises(SourceUnreachable, match="DEADLINE_EXCEEDED"):
        list(client.rows(query, deadline_s=0.5))
    assert client.fetch_texts(Query("SELECT 1"))


def fates(**settings: Any) -> list[str]:
    """Return what befalls a hundred queries."""
    faults = Faults(SimulatorSettings(**settings))
    outcomes = []
    for number in range(100):
        try:
            outcomes.append(str(faults.fate(StreamQuery(number, None, f"token {number % 7}", 1000))))
        except Refusal as refusal:
            outcomes.append(str(refusal))
    return outcomes


def test_faults_are_seeded() -> None:
    """The same queries meet the same faults; another seed deals others."""
    chosen: dict[str, Any] = {"faults": PASSING_FAULTS, "fault_probability": 0.5}

    assert fates(seed=1, **chosen) == fates(seed=1, **chosen)
    assert fates(seed=1, **chosen) != fates(seed=2, **chosen)
    assert len(set(fates(seed=1, **chosen))) > 10
    assert len(set(fates(seed=1))) == 1


def test_a_query_that_is_asked_again_gets_through() -> None:
    """Even at the worst odds, the number of successive failures of a query is bounded."""
    faults = Faults(SimulatorSettings(faults=(Fault.UNAVAILABLE,), fault_probability=1.0))
    query = StreamQuery(1, None, "token", 1000)

    fates = [faults.fate(query).fault for _ in range(MAX_FAULTS_IN_A_ROW + 1)]

    assert [*[Fault.UNAVAILABLE] * MAX_FAULTS_IN_A_ROW, None] == fates


def test_records_out_of_retention() -> None:
    """A start before the retention is refused, also for a partition that ended before it."""
    settings = SimulatorSettings(history_s=30, retention_s=5, partitions=2, partition_life_s=1, rate=1)
    with Simulator(settings) as simulator:
        stream, origin = simulator.database.stream, simulator.origin_micros
        (first, *_) = simulator.history.tree.live_at(origin)
        for token, text in ((None, "too far in the past"), (first.token, "no longer valid")):
            with pytest.raises(Refusal, match=text):
                stream.check(StreamQuery(origin, None, token, 1000))


def test_an_early_end_is_found_by_asking_again() -> None:
    """A query after an early end gets through, and the first of all queries never ends early."""
    faults = Faults(SimulatorSettings(faults=(Fault.EARLY_END,), fault_probability=1.0))
    first, query = StreamQuery(1, None, None, 1000), StreamQuery(1, None, "token", 1000)

    assert [faults.fate(first).fault for _ in range(3)] == [None] * 3
    assert [faults.fate(query).fault for _ in range(4)] == [Fault.EARLY_END, None] * 2
