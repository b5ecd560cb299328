"""Fixtures of the servers that one suite runs against: simulator and emulator, in both dialects."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pytest

from cdc_platform.model.base.timestamps import from_datetime
from cdc_platform.simulator.wire.simulator_settings import Dialect, PartitionMode
from cdc_platform_tests.emulator_fixtures import required
from cdc_platform_tests.servers.spanner_emulator import open_emulator
from cdc_platform_tests.sources.spanner.servers import (
    EMULATOR,
    MOVING,
    SIMULATOR,
    Partitions,
    Record,
    Server,
    data_of,
    open_on_emulator,
    open_simulator,
    read_all,
)

TOKEN_LIFE_S: Final = 1
"""Partitions of the emulator live so long to twice as long."""
CHURNED_AFTER_S: Final = {SIMULATOR: 8.0, MOVING: 8.0, EMULATOR: 4.0 * TOKEN_LIFE_S + 1.0}
"""Partitions have split, merged and moved before it returns."""
SERVERS: Final = [(name, dialect) for name in (SIMULATOR, EMULATOR) for dialect in Dialect]
MOVING_SERVERS: Final = [(MOVING, dialect) for dialect in Dialect]

Servers = dict[tuple[str, Dialect], Server]


@dataclass(frozen=True)
class Answers:
    """All records of a server's partitions up to a moment, by token."""

    server: Server
    partitions: Partitions
    end_micros: int

    @cached_property
    def data(self) -> list[Record]:
        """The fields of all data change records."""
        return [record for records in self.partitions.values() for record in data_of(records)]


@pytest.fixture(scope="session")
def simulators() -> Iterator[Servers]:
    """A simulator for each dialect, both at once, so that the partitions of one age meanwhile."""
    with ExitStack() as stack:
        yield {(SIMULATOR, dialect): stack.enter_context(open_simulator(dialect)) for dialect in Dialect}


@pytest.fixture(scope="session")
def moving_simulators() -> Iterator[Servers]:
    """A simulator with mutable key ranges for each dialect."""
    mode = PartitionMode.MUTABLE_KEY_RANGE
    with ExitStack() as stack:
        yield {(MOVING, dialect): stack.enter_context(open_simulator(dialect, mode)) for dialect in Dialect}


@pytest.fixture(scope="session")
def emulators() -> Iterator[Servers]:
    """A database of each dialect on an emulator whose partitions churn quickly, both at once."""
    with required(), open_emulator(TOKEN_LIFE_S) as host, ExitStack() as stack:
        yield {
            (EMULATOR, dialect): stack.enter_context(open_on_emulator(host, dialect)) for dialect in Dialect
        }


@pytest.fixture(params=SERVERS, ids="-".join)
def server(request: pytest.FixtureRequest) -> Server:
    """One of the servers; the simulators need no emulator."""
    name, _ = request.param
    servers: Servers = request.getfixturevalue(f"{name}s")
    return servers[request.param]


@pytest.fixture(scope="session")
def answers_of() -> Callable[[Server], Answers]:
    """Function that returns, once for each server, its records after its partitions have churned."""
    answers: dict[tuple[str, Dialect], Answers] = {}

    def read(server: Server) -> Answers:
        if (server.name, server.dialect) not in answers:
            age_s = (from_datetime(server.now()) - server.created_micros) / 1_000_000
            time.sleep(max(0.0, CHURNED_AFTER_S[server.name] - age_s))
            now_micros = from_datetime(server.now())
            answers[server.name, server.dialect] = Answers(server, read_all(server, now_micros), now_micros)
        return answers[server.name, server.dialect]

    return read


@pytest.fixture
def everything(server: Server, answers_of: Callable[[Server], Answers]) -> Answers:
    """All records of one of the servers."""
    return answers_of(server)


@pytest.fixture(params=[*SERVERS, *MOVING_SERVERS], ids="-".join)
def any_server(request: pytest.FixtureRequest) -> Server:
    """One of the servers, with either partition mode."""
    name, _ = request.param
    servers: Servers = request.getfixturevalue(f"{name}s")
    return servers[request.param]


@pytest.fixture
def any_answers(any_server: Server, answers_of: Callable[[Server], Answers]) -> Answers:
    """All records of one of the servers, with either partition mode."""
    return answers_of(any_server)


@pytest.fixture(params=MOVING_SERVERS, ids="-".join)
def moving(
    request: pytest.FixtureRequest, moving_simulators: Servers, answers_of: Callable[[Server], Answers]
) -> Answers:
    """All records of a server with mutable key ranges."""
    return answers_of(moving_simulators[request.param])
