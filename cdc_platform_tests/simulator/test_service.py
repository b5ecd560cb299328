"""Change stream queries that the simulator's service refuses, as Spanner does, before any record."""

from threading import Event
from typing import Any, Final

import pytest
from google.api_core.exceptions import InternalServerError
from google.cloud.spanner_v1.types import CreateSessionRequest, ExecuteSqlRequest, Type, TypeCode

from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.service import SpannerService
from cdc_platform.simulator.wire.problems import Refusal
from cdc_platform.simulator.wire.simulator_settings import SimulatorSettings
from cdc_platform.sources.spanner.client.query import change_stream_query, to_request
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.simulator.histories import ORIGIN, SECOND, Simulated, simulated
from cdc_platform_tests.sources.spanner.servers import connected

STRONG: Final[dict[str, Any]] = {"single_use": {"read_only": {"strong": True}}}


@pytest.fixture(scope="module")
def database() -> Simulated:
    """A second of history."""
    return simulated(1, rate=5, accounts=20)


def ask(
    database: Simulated, parameters: dict[str, tuple[str, Any]] | None = None, **changed: Any
) -> list[bytes]:
    """Return the answer to the first of all change stream queries, with some of it changed."""
    names, service = database.settings, SpannerService(database.database)
    create_request = CreateSessionRequest(database=names.database_path)
    session = service.create_session(CreateSessionRequest.pb(create_request)).name
    settings = SpannerSettings(names.project, names.instance, names.database, names.change_stream)
    query = change_stream_query(names.change_stream, "", ORIGIN, ORIGIN + SECOND, 1000)
    request = to_request(query, settings, session)
    for name, (type_name, value) in (parameters or {}).items():
        request.params.update({name: value})
        request.param_types[name] = Type(code=TypeCode[type_name])
    for name, value in changed.items():
        setattr(request, name, value)
    return list(service.execute_streaming_sql(ExecuteSqlRequest.pb(request), Event()))


def test_a_plan_is_refused(database: Simulated) -> None:
    """Spanner makes no plan of a change stream query; a profile of it, and no mode, are answered."""
    with pytest.raises(Refusal, match=r"UNIMPLEMENTED.*PLAN"):
        ask(database, query_mode=ExecuteSqlRequest.QueryMode.PLAN)

    assert ask(database) == ask(database, query_mode=ExecuteSqlRequest.QueryMode.PROFILE) != []


@pytest.mark.parametrize("mode", [{"read_write": {}}, {"partitioned_dml": {}}, {}])
def test_only_a_strong_read_is_answered(database: Simulated, mode: dict[str, Any]) -> None:
    """A single use that is not to read only is refused; a request that selects nothing reads strongly."""
    with pytest.raises(Refusal, match=r"INVALID_ARGUMENT.*must be strong reads"):
        ask(database, transaction={"single_use": mode})

    assert ask(database, transaction=STRONG) == ask(database, transaction=None) != []


NAMED: Final = "SELECT ChangeRecord FROM READ_bank_changes({})"
FIVE: Final = "@start_timestamp, @end_timestamp, @partition_token, @heartbeat_milliseconds, @read_options"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (f"{FIVE}, NULL", "accepts at most 5 arguments, found 6"),
        ("start_time => @start_timestamp", "start_time not found.*it has start_timestamp, end_timestamp"),
        ("@start_timestamp, start_timestamp => @start_timestamp", "Duplicate named argument start_timestamp"),
        ("@start_timestamp, NULL, 7", "partition_token must be STRING, but is INT64"),
        ("@start_timestamp, NULL, NULL, 'abc'", "heartbeat_milliseconds must be INT64, but is 'abc'"),
        ("'yesterday', NULL, NULL, 1000", "Invalid timestamp: 'yesterday'"),
    ],
)
def test_arguments_are_those_of_the_signature(database: Simulated, arguments: str, message: str) -> None:
    """Number, names and literals of a read function's arguments are checked, and mistakes are described."""
    with pytest.raises(Refusal, match=f"INVALID_ARGUMENT.*{message}"):
        ask(database, sql=NAMED.format(arguments))


@pytest.mark.parametrize(
    ("name", "type_name", "value", "message"),
    [
        ("heartbeat_milliseconds", "INT64", "abc", "parameter heartbeat_milliseconds: Expected INT64"),
        ("heartbeat_milliseconds", "TYPE_CODE_UNSPECIFIED", "abc", "must be INT64, but is 'abc'"),
        ("heartbeat_milliseconds", "TYPE_CODE_UNSPECIFIED", [1], r"must be INT64, but is \[1.0\]"),
        ("heartbeat_milliseconds", "FLOAT64", 1000.0, "must be INT64, but is FLOAT64"),
        ("start_timestamp", "STRING", "2027-01-15T08:00:00Z", "must be TIMESTAMP, but is STRING"),
        ("start_timestamp", "TIMESTAMP", 7.0, "must be TIMESTAMP, but is 7.0"),
        ("end_timestamp", "TIMESTAMP", "99999-01-01T00:00:00Z", "Invalid timestamp"),
        ("partition_token", "INT64", "7", "must be STRING, but is INT64"),
    ],
)
def test_parameters_have_the_types_of_the_signature(
    database: Simulated, name: str, type_name: str, value: Any, message: str
) -> None:
    """A parameter of another type, or with a value that is not of its type, is refused by its name."""
    with pytest.raises(Refusal, match=f"INVALID_ARGUMENT.*{message}"):
        ask(database, {name: (type_name, value)})


@pytest.mark.integration
def test_a_mistake_of_the_simulator_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller reads what failed, as INTERNAL, and not that some exception was thrown."""
    with Simulator(SimulatorSettings(rate=5, accounts=20)) as simulator, connected(simulator) as stock:
        monkeypatch.setattr(simulator.database, "answer", None)
        with (
            stock.snapshot() as reading,
            pytest.raises(InternalServerError, match=r"failed in ExecuteStr.*TypeErr"),
        ):
            list(reading.execute_sql("SELECT 1"))
