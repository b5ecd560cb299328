"""Faults of change stream queries, on demand or at random with a seed."""

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cdc_platform.simulator.stream.stream import StreamQuery
from cdc_platform.simulator.wire.chunks import Row
from cdc_platform.simulator.wire.problems import Refusal, start_in_past
from cdc_platform.simulator.wire.simulator_settings import Fault, SimulatorSettings

MAX_FAULTS_IN_A_ROW: Final = 2
"""Limit after which a repeated query succeeds, as it eventually would with Spanner."""
KINT64MAX_1: Final = 2**63 - 2

_LATEST_ROW: Final = 20
_ENDINGS: Final = {
    Fault.UNAVAILABLE: Refusal("UNAVAILABLE", "The service is currently unavailable."),
    Fault.UNAVAILABLE_WITHOUT_TOKENS: Refusal("UNAVAILABLE", "The service is currently unavailable."),
    Fault.RST_STREAM: Refusal("INTERNAL", "Received RST_STREAM with error code 2"),
    Fault.RST_STREAM_WITHOUT_TOKENS: Refusal("INTERNAL", "Received RST_STREAM with error code 2"),
    Fault.DEADLINE_EXCEEDED: Refusal("DEADLINE_EXCEEDED", "Deadline Exceeded"),
}
_WITHOUT_TOKENS: Final = (Fault.UNAVAILABLE_WITHOUT_TOKENS, Fault.RST_STREAM_WITHOUT_TOKENS)


@dataclass(frozen=True)
class QueryFault:
    """Fault of one query, after a number of its rows; nothing if there is no fault."""

    fault: Fault | None = None
    after_rows: int = 0

    @property
    def has_tokens(self) -> bool:
        """Whether its messages have resume tokens."""
        return self.fault not in _WITHOUT_TOKENS


@dataclass
class RequestedFault:
    """A requested fault: how often it still occurs, and its partition if it applies to only one."""

    fault: Fault
    times: int
    token: str | None
    after_rows: int


class Faults:
    """Chooses the fault of each change stream query; the same sequence of queries gets the same faults."""

    def __init__(self, settings: SimulatorSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._demands: list[RequestedFault] = []
        self._in_a_row: dict[str | None, int] = {}
        self._asked: dict[tuple[str | None, int | None], int] = {}
        self._expired: dict[str | None, int] = {}
        self.incidents: dict[Fault, int] = dict.fromkeys(Fault, 0)

    def demand(self, fault: Fault, times: int, token: str | None, after_rows: int) -> None:
        """Inject a fault into the next queries, of one partition if a token is given."""
        with self._lock:
            self._demands.append(RequestedFault(fault, times, token, after_rows))

    def fate(self, query: StreamQuery) -> QueryFault:
        """Return the fate of a query.

        Raises:
            Refusal: the query is rejected at once.
        """
        with self._lock:
            fate = self._take_demand(query) or self._random(query)
            if fate.fault is not None:
                self.incidents[fate.fault] += 1
            self._refuse(fate, query)
            return fate

    def _take_demand(self, query: StreamQuery) -> QueryFault | None:
        for demand in self._demands:
            if demand.times > 0 and demand.token in (None, query.token):
                demand.times -= 1
                return QueryFault(demand.fault, demand.after_rows)
        return None

    def _random(self, query: StreamQuery) -> QueryFault:
        settings = self._settings
        key = (query.token, query.start_micros)
        self._asked[key] = self._asked.get(key, 0) + 1
        seed = f"{settings.seed}/{query.token}/{query.start_micros}/{self._asked[key]}"
        dice = random.Random(seed)  # noqa: S311 - simulated, and repeatable
        is_spared = self._in_a_row.get(query.token, 0) >= MAX_FAULTS_IN_A_ROW
        if not settings.faults or dice.random() >= settings.fault_probability or is_spared:
            self._in_a_row[query.token] = 0
            return QueryFault()
        fault, after_rows = dice.choice(settings.faults), dice.randrange(_LATEST_ROW)
        if fault is Fault.EARLY_END and query.token is None:
            # Readers could not detect missing partitions at the very beginning.
            return QueryFault()
        # A reader that repeats a query after an early end must be able to rely on the answer.
        is_last = fault is Fault.EARLY_END
        in_a_row = MAX_FAULTS_IN_A_ROW if is_last else self._in_a_row.get(query.token, 0) + 1
        self._in_a_row[query.token] = in_a_row
        return QueryFault(fault, after_rows)

    def _refuse(self, fate: QueryFault, query: StreamQuery) -> None:
        start = query.start_micros or 0
        if fate.fault is Fault.EXPIRED:
            self._expired[query.token] = max(start, self._expired.get(query.token, 0))
        if start <= self._expired.get(query.token, -1):
            raise start_in_past(self._expired[query.token] + 1, start)
        if fate.fault is Fault.RESOURCE_EXHAUSTED:
            raise Refusal("RESOURCE_EXHAUSTED", "Too many concurrent change stream queries.")


def befall(
    fate: QueryFault, batches: Iterator[list[Row]], stall_s: float, is_over: threading.Event
) -> Iterator[list[Row]]:
    """Yield the rows of a query, with the fault that was chosen for it.

    Raises:
        Refusal: the query breaks off.
    """
    if fate.fault in (None, Fault.READ_TIMESTAMP):
        yield from batches
        return
    remaining = fate.after_rows
    for batch in batches:
        if len(batch) < remaining:
            remaining -= len(batch)
            yield batch
            continue
        yield batch[:remaining]
        if fate.fault is not Fault.STALLED:
            break
        is_over.wait(stall_s)
        yield batch[remaining:]
        yield from batches
        return
    if fate.fault in _ENDINGS:
        raise _ENDINGS[fate.fault]
