"""One window read from a scripted server: nothing is lost or duplicated, and every end is reported."""

import json
import time
from dataclasses import replace
from typing import Any

import grpc  # type: ignore[import-untyped] # ships no types
import pyarrow as pa
import pytest
from google.cloud.spanner_v1.types import ExecuteSqlRequest

from cdc_platform.errors import AccessDenied, SourceNotFound, SourceUnreachable
from cdc_platform.model.base.timestamps import from_datetime, from_rfc3339, to_rfc3339
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.query import Query
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.sources.spanner.stream import batches
from cdc_platform.sources.spanner.stream.window_reader import read_window
from cdc_platform_tests.sources.spanner.fake_server import (
    Answer,
    FakeServer,
    Plain,
    change_row,
    child_record,
    data_record,
    fake_server,
    json_data_record,
)

START = from_rfc3339("2026-11-21T06:00:00Z")
SECOND = 1_000_000
WINDOW = ReadWindow("token", START, START + 60 * SECOND)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def at(second: float) -> str:
    """Return a timestamp of the window."""
    return to_rfc3339(START + int(second * SECOND))


def data(second: float, name: str) -> list[Plain]:
    """Return a row with one data change record, identified by its transaction."""
    return [change_row(data=[data_record(at(second), name)])]


def heartbeat(second: float) -> list[Plain]:
    """Return a row with a heartbeat."""
    return [change_row(heartbeats=[at(second)])]


def read(server: FakeServer, window: ReadWindow = WINDOW) -> pa.Table:
    """Return everything that a window gives."""
    client = SpannerClient(server.settings())
    try:
        return pa.Table.from_batches(read_window(client, 3, window))
    finally:
        client.close()


def names(table: pa.Table) -> list[str]:
    """Return the names of the data change records."""
    return [name for name in table["server_transaction_id"].to_pylist() if name is not None]


def report(table: pa.Table) -> tuple[str, float]:
    """Return outcome and end of the window, in seconds after its start."""
    row = table.to_pylist()[-1]
    assert row["kind"] == "read_window"
    assert row["record_timestamp"] == row["read_window"]["end_inclusive"]
    return row["read_window"]["outcome"], (from_datetime(row["record_timestamp"]) - START) / SECOND


def starts(server: FakeServer) -> list[float]:
    """Return the start of each query, in microseconds after that of the window."""
    texts = [dict(ExecuteSqlRequest.pb(request).params)["start_timestamp"] for request in server.requests]
    return [from_rfc3339(text) - START for text in texts]


def test_window_is_complete_when_its_query_ends() -> None:
    """All records up to the end come; those after it are left for the next window."""
    rows = [data(1, "a"), heartbeat(2), data(60, "b"), data(60.000001, "c")]
    with fake_server(Answer(rows)) as server:
        table = read(server)

    assert names(table) == ["a", "b"]
    assert report(table) == ("complete", 60.0)
    assert table.to_pylist()[-1]["read_window"]["data_change_records"] == 2
    assert table.to_pylist()[-1]["read_window"]["heartbeat_records"] == 1
    assert starts(server) == [1]


def json_rows(*records: dict[str, Any]) -> list[list[Plain]]:
    """Return the rows of a PostgreSQL database: one JSON text each."""
    return [[json.dumps(record)] for record in records]


def test_window_of_a_postgresql_database() -> None:
    """Records come as JSON, and a broken stream continues where it is complete, as in the other dialect."""
    child = {"token": "child", "parent_partition_tokens": ["token"]}
    end = {"start_timestamp": at(5), "record_sequence": "00000001", "child_partitions": [child]}
    first, second = json_data_record(at(1), "a"), json_data_record(at(2), "b")
    broken = Answer(json_rows(first, second), UNAVAILABLE, json=True)
    again = Answer(json_rows(second, {"child_partitions_record": end}), json=True)
    with fake_server(broken, again) as server:
        client = SpannerClient(server.settings(dialect="postgresql"))
        table = pa.Table.from_batches(read_window(client, 3, WINDOW))
        client.close()

    assert (names(table), report(table)) == (["a", "b"], ("finished", 4.999999))
    assert [dict(ExecuteSqlRequest.pb(request).params)["p3"] for request in server.requests] == ["token"] * 3
    assert table.to_pylist()[0]["mods"] == [
        {"keys": '{"id":"1"}', "new_values": '{"balance":"5"}', "old_values": "{}"}
    ]


def test_records_of_the_other_dialect_are_refused() -> None:
    """A database whose dialect is set wrong is not misread."""
    with fake_server(Answer(json_rows(json_data_record(at(1))), json=True)) as server:
        table = read(server)

    assert (names(table), report(table)) == ([], ("interrupted", 0.0))
    assert table.to_pylist()[-1]["read_window"]["error"].startswith("RecordUnreadable: ")


def test_quiet_window_is_complete() -> None:
    """Two queries that return nothing have read everything."""
    with fake_server(Answer()) as server:
        table = read(server)

    assert (table.num_rows, report(table)) == (1, ("complete", 60.0))
    assert starts(server) == [1, 1]


def test_stream_that_ends_too_early_is_asked_again() -> None:
    """An OK end is accepted if a second query returns nothing new; nothing is lost or duplicated."""
    children: list[list[Plain]] = [
        [change_row(children=[child_record(at(5), name, "token")])] for name in ("left", "right")
    ]
    rows = [data(1, "a"), data(2, "b"), data(2, "c"), heartbeat(3), *children]
    early = [Answer(rows[:length]) for length in range(len(rows))]
    with fake_server(*early, Answer(rows[4:])) as server:
        table = read(server)

    assert (names(table), report(table)) == (["a", "b", "c"], ("finished", 4.999999))
    announced = [row["child_partitions"] for row in table.to_pylist() if row["kind"] == "child_partitions"]
    assert [[child["token"] for child in children] for children in announced] == [["left"], ["right"]]


def test_end_that_a_record_proves_is_not_asked_for_again() -> None:
    """A heartbeat at the end, or any record after it, says that the window is whole."""
    for last in (heartbeat(60), data(60.000001, "b")):
        with fake_server(Answer([data(1, "a"), last])) as server:
            assert report(read(server)) == ("complete", 60.0)
            assert starts(server) == [1]


def test_partition_that_ended_is_finished_right_before_its_children() -> None:
    """Children announce the end; the partition's position is the microsecond before theirs."""
    child: list[Plain] = [change_row(children=[child_record(at(5), "child", "token")])]
    with fake_server(Answer([data(1, "a"), child])) as server:
        table = read(server)

    assert report(table) == ("finished", 4.999999)


def test_broken_stream_continues_where_it_is_complete() -> None:
    """After a failure the read continues at the last timestamp, whose records come once all the same."""
    first = Answer([data(1, "a"), data(2, "b"), data(2, "c")], UNAVAILABLE)
    again = Answer([data(2, "b"), data(2, "c"), data(2, "d"), data(3, "e")])
    with fake_server(first, again) as server:
        table = read(server)

    assert names(table) == ["a", "b", "c", "d", "e"]
    assert report(table) == ("complete", 60.0)
    assert starts(server) == [1, 2 * SECOND, 3 * SECOND]


def test_stream_that_progresses_may_break_often() -> None:
    """Only failures without progress count; a read longer than its deadline ends in the end."""
    broken = [Answer([heartbeat(second)], grpc.StatusCode.DEADLINE_EXCEEDED) for second in range(1, 8)]
    with fake_server(*broken, Answer([data(9, "a")])) as server:
        table = read(server)

    assert (names(table), report(table)) == (["a"], ("complete", 60.0))


@pytest.mark.parametrize(
    ("answer", "end", "queries"),
    [
        # the records at 2 s may not be all, so they are left out
        (Answer([data(1, "a"), data(2, "b")], UNAVAILABLE, "down"), 1.999999, 3),
        (Answer([data(1, "a"), heartbeat(2)], UNAVAILABLE, "down"), 2.0, 3),
        # what cannot pass is not tried again
        (Answer([data(1, "a"), data(2, "b")], grpc.StatusCode.PERMISSION_DENIED, "down"), 1.999999, 1),
    ],
)
def test_read_that_fails_reports_how_far_it_came(answer: Answer, end: float, queries: int) -> None:
    """The report of an interrupted window ends where nothing is missing, and carries the error."""
    with fake_server(answer, replace(answer, rows=())) as server:
        table = read(server)

    assert names(table) == ["a"]
    assert report(table) == ("interrupted", end)
    assert "down" in table.to_pylist()[-1]["read_window"]["error"]
    assert queries == len(server.requests)


def test_failure_before_any_record_leaves_the_position() -> None:
    """A window of which nothing was read ends where it began."""
    expired = Answer((), grpc.StatusCode.OUT_OF_RANGE, "Specified start_timestamp is too far in the past.")
    with fake_server(expired) as server:
        table = read(server)

    assert report(table) == ("interrupted", 0.0)
    assert table.to_pylist()[-1]["read_window"]["error"].startswith("RetentionExpired: ")


def test_unreadable_record_interrupts_the_window() -> None:
    """A record of another shape stops its window where nothing is missing, and is named."""
    with fake_server(Answer([data(1, "a"), data(2, "b"), [["x"]]])) as server:
        table = read(server)

    assert (names(table), report(table)) == (["a"], ("interrupted", 1.999999))
    assert table.to_pylist()[-1]["read_window"]["error"].startswith("RecordUnreadable: ")


def test_large_window_comes_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records leave in batches while the read continues, except those of the last timestamp."""
    monkeypatch.setattr(batches, "RECORDS_PER_BATCH", 2)
    rows = [data(1, "a"), data(2, "b"), data(2, "c"), data(2, "d"), data(3, "e")]
    with fake_server(Answer(rows)) as server:
        parts = list(read_window(SpannerClient(server.settings()), 3, WINDOW))

    sizes = [part.num_rows for part in parts]
    assert sizes == [1, 3, 1, 1]
    assert names(pa.Table.from_batches(parts)) == ["a", "b", "c", "d", "e"]


def test_lost_session_is_replaced() -> None:
    """A session that the server forgot costs one attempt."""
    lost_session = Answer((), grpc.StatusCode.NOT_FOUND, "Session not found: projects/p")
    with fake_server(lost_session, Answer([data(1, "a")])) as server:
        table = read(server)

    assert (names(table), len(server.sessions)) == (["a"], 2)


def test_role_reaches_the_session() -> None:
    """A database role is the creator role of the session."""
    with fake_server(Answer()) as server:
        SpannerClient(server.settings(database_role="reader")).fetch(Query("SELECT 1"))

    assert [request.session.creator_role for request in server.sessions] == ["reader"]
    assert server.sessions[0].session.multiplexed


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, AccessDenied),
        (grpc.StatusCode.NOT_FOUND, SourceNotFound),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, SourceUnreachable),
    ],
)
def test_refusal_is_raised_with_what_to_do(code: grpc.StatusCode, error: type[Exception]) -> None:
    """A small query that is refused raises the platform's error, which names the stream."""
    with fake_server(Answer((), code, "no")) as server, pytest.raises(error, match="stream `stream` of"):
        SpannerClient(server.settings()).fetch(Query("SELECT 1"))


@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid:9010"])
def test_unreachable_host_fails_soon(host: str) -> None:
    """A host that is not there gives an error after a few attempts, within seconds."""
    settings = SpannerSettings("p", "i", "d", "s", emulator_host=host, backoff_max_s=0.5)
    begin_s = time.monotonic()

    with pytest.raises(SourceUnreachable, match="Check the network"):
        SpannerClient(settings).fetch(Query("SELECT 1"))

    assert time.monotonic() - begin_s < 120.0
