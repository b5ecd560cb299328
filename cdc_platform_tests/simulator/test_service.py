"""Change stream queries that the simulator's service refuses, as Spanner does, before any record."""

from threading import Event
from typing import Any, Final

import pytest
from google.cloud.spanner_v1.types import CreateSessionRequest, ExecuteSqlRequest

from cdc_platform.simulator.problems import Refusal
from cdc_platform.simulator.service import SpannerService
from cdc_platform.sources.spanner.query import change_stream_query, to_request
from cdc_platform.sources.spanner.settings import SpannerSettings
from cdc_platform_tests.simulator.histories import ORIGIN, SECOND, Simulated, simulated

STRONG: Final[dict[str, Any]] = {"single_use": {"read_only": {"strong": True}}}


@pytest.fixture(scope="module")
def database() -> Simulated:
    """A second of history."""
    return simulated(1, rate=5, accounts=20)


def ask(database: Simulated, **changed: Any) -> list[bytes]:
    """Return the answer to the first of all change stream queries, with fields of its request changed."""
    names, service = database.settings, SpannerService(database.database)
    wanted = CreateSessionRequest(database=names.database_path)
    session = service.create_session(CreateSessionRequest.pb(wanted)).name
    settings = SpannerSettings(names.project, names.instance, names.database, names.change_stream)
    query = change_stream_query(names.change_stream, "", ORIGIN, ORIGIN + SECOND, 1000)
    request = to_request(query, settings, session)
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
