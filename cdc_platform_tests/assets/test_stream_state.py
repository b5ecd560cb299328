"""The stream as an asset of Dagster: what its observations show."""

import sys
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import grpc  # type: ignore[import-untyped] # ships no types
import pytest
from google.cloud.datastream_v1.types import Error

from cdc_platform.assets.stream_state import SHOWN_OBJECTS
from cdc_platform_tests.sources.datastream.datastream_server import (
    STREAM,
    DatastreamServer,
    Refusal,
    unused_host,
)
from cdc_platform_tests.stream_runs import StreamBench, table


def rows(value: Any) -> list[dict[str, object]]:
    """Return the rows of a table that an observation shows."""
    return [dict(record.data) for record in value]


def test_the_stream_stands_before_what_reads_it(stream_bench: StreamBench) -> None:
    """It has a group, a kind and owners as the other assets have, and the raw layer comes after it."""
    definitions = stream_bench.definitions()
    dg.Definitions.validate_loadable(definitions)
    graph = definitions.resolve_asset_graph()
    node = graph.get(stream_bench.stream.key)
    assert ("bank/platform", {"datastream"}, ["team:payments"]) == (node.group_name, node.kinds, node.owners)
    assert (node.is_observable, node.is_materializable) == (True, False)
    assert {stream_bench.raw} == node.child_keys


def test_an_observation_shows_state_errors_and_objects(
    stream_server: DatastreamServer, stream_bench: StreamBench
) -> None:
    """The UI shows Datastream's state, objects in trouble first."""
    at = datetime(2026, 1, 31, 8, tzinfo=UTC)
    stream_error = Error(
        reason="REPLICATION_SLOT_LOST", message="Slot cdc is gone", error_uuid="u1", details={"slot": "cdc"}
    )
    large = Error(reason="EVENT_TOO_LARGE", message="120 MB", error_uuid="u2", error_time=at)
    objects = [table("accounts"), table("cards", "ACTIVE"), table("users", "FAILED", large)]
    stream_server.hold("FAILED_PERMANENTLY", *objects, errors=[stream_error])
    assert stream_bench.run().success
    shown = stream_bench.observed()
    errors, listed = rows(shown.pop("Errors").records), rows(shown.pop("Object table").records)
    assert "recover the stream" in shown.pop("Advice")
    assert {name: value for name, value in shown.items() if not name.startswith("dagster/")} == {
        "State": "failed_permanently",
        "Display name": "Accounts of the bank",
        "Stream errors": 1,
        "Objects": 3,
        "Objects in trouble": 1,
        "Backfills active": 1,
        "Backfills completed": 1,
        "Backfills failed": 1,
    }
    lost_row = {"where": "the stream", "reason": "REPLICATION_SLOT_LOST", "message": "Slot cdc is gone"}
    large_row = {"where": "public.users", "reason": "EVENT_TOO_LARGE", "message": "120 MB"}
    assert [
        {**lost_row, "at": "", "error_uuid": "u1", "details": "slot=cdc"},
        {**large_row, "at": "2026-01-31T08:00:00.000000Z", "error_uuid": "u2", "details": ""},
    ] == errors
    assert listed == [
        {"object": "public.users", "backfill": "failed", "errors": "EVENT_TOO_LARGE: 120 MB"},
        {"object": "public.accounts", "backfill": "completed", "errors": ""},
        {"object": "public.cards", "backfill": "active", "errors": ""},
    ]


def test_a_stream_of_many_objects_shows_some_and_counts_all(
    stream_server: DatastreamServer, stream_bench: StreamBench
) -> None:
    """A failing object is shown, for any number of objects."""
    stream_server.hold("RUNNING", *(table(f"t{number:03}") for number in range(300)), table("zz", "STOPPED"))
    assert stream_bench.run().success
    shown = stream_bench.observed()
    listed = rows(shown["Object table"].records)
    assert (shown["Objects"], len(listed), listed[0]["object"]) == (301, SHOWN_OBJECTS, "public.zz")


def test_each_run_observes_again(stream_server: DatastreamServer, stream_bench: StreamBench) -> None:
    """A stream that was paused and continues is seen to continue, and both moments stay in its history."""
    for state in ("RUNNING", "PAUSED", "RUNNING"):
        stream_server.hold(state)
        assert stream_bench.run().success
    records = stream_bench.instance.fetch_observations(stream_bench.stream.key, limit=3).records
    observations = [record.asset_observation for record in records]
    states = [observation.metadata["State"].value for observation in observations if observation is not None]
    assert states == ["running", "paused", "running"]


def test_a_run_asks_once(stream_server: DatastreamServer, stream_bench: StreamBench) -> None:
    """The asset and its check speak of the same answer."""
    stream_server.hold("RUNNING", table("accounts"))
    assert stream_bench.run().success
    assert stream_server.calls == ["GetStream", "ListStreamObjects"]


@pytest.mark.parametrize("state", ["PAUSED", "FAILED_PERMANENTLY"])
def test_what_was_written_is_read_whatever_the_state(
    stream_server: DatastreamServer, stream_bench: StreamBench, state: str
) -> None:
    """A stopped stream does not stop a run: its last files are still read."""
    stream_server.hold(state)
    result = stream_bench.run()
    assert result.success
    assert stream_bench.raw in {event.asset_key for event in result.get_asset_materialization_events()}


def test_a_stream_that_cannot_be_asked_stops_no_run(
    stream_server: DatastreamServer, stream_bench: StreamBench
) -> None:
    """The observation says that the state is unknown, and why."""
    stream_server.hold("RUNNING")
    stream_server.refusals = [Refusal(grpc.StatusCode.PERMISSION_DENIED, "not yours")]
    result = stream_bench.run()
    assert result.success
    assert stream_bench.raw in {event.asset_key for event in result.get_asset_materialization_events()}
    shown = stream_bench.observed()
    assert shown["State"] == "unknown"
    assert shown["Advice"].startswith("AccessDenied: ")
    assert STREAM in shown["Advice"]


def test_a_server_that_is_down_stops_no_run(
    stream_server: DatastreamServer, stream_bench: StreamBench
) -> None:
    """The state is unknown then, not the last one that was seen."""
    stream_server.hold("RUNNING")
    assert stream_bench.run().success
    down = StreamBench(stream_server.settings(datastream_host=unused_host()), stream_bench.instance)
    assert down.run().success
    assert down.observed()["State"] == "unknown"


def test_a_missing_library_fails_the_run(stream_bench: StreamBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Observing the state needs an optional library; without it, no run claims to have observed anything."""
    monkeypatch.setitem(sys.modules, "google.cloud.datastream_v1", None)
    result = stream_bench.run()
    assert not result.success
    failures = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    text = " ".join(failure.to_string() for failure in failures if failure is not None)
    assert "pip install 'cdc_platform[datastream]'" in text
