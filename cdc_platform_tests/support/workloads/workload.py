"""Steady workloads of all sources: fresh changes for every cycle, a bounded number of rows, known results."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import DELETED, TableOptions
from cdc_platform.model.stream.source_capabilities import SourceSettings
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.settings.connector import Strategy
from cdc_platform_tests.servers.kafka import Broker
from cdc_platform_tests.support.pipelines import rows_of

Rows = Counter[tuple[Any, ...]]
"""Rows of a table, as often as it has them."""
SHOWN_ROWS: Final = 3


@dataclass(frozen=True)
class Place:
    """Where a workload runs, and how large it is.

    Args:
        folder: for its inputs; must not exist yet.
        lake: of its pipeline.
        name: of its pipeline.
        changes: about how many changes arrive for a cycle.
        seed: of its dice.
        has_histories: whether the pipeline keeps a history of one table.
    """

    folder: Path
    lake: LakeSettings
    name: str
    changes: int
    seed: int = 1
    has_histories: bool = False

    def settings(self, source: SourceSettings, table: str) -> PipelineSettings:
        """Return the settings of a pipeline, which keeps a history of a table if any are wanted."""
        return PipelineSettings(
            self.name,
            source,
            self.lake,
            table_options={table: TableOptions(history=True)} if self.has_histories else {},
            idle_interval_s=0,
        )


class Workload(Protocol):
    """One source with one pipeline that reads it."""

    @property
    def settings(self) -> PipelineSettings:
        """The settings of the pipeline."""
        ...

    def send(self) -> None:
        """Let the changes of one more cycle arrive."""
        ...

    def finish(self) -> None:
        """Let everything arrive that was kept back so far."""
        ...

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Return how the tables differ from what was sent, which the workload knows by its own model."""
        ...


WorkloadOpener = Callable[[Place, Broker | None], AbstractContextManager[Workload]]


@contextmanager
def _spanner(place: Place, _broker: Broker | None) -> Iterator[Workload]:
    from cdc_platform_tests.support.workloads.spanner import open_spanner

    with open_spanner(place) as workload:
        yield workload


@contextmanager
def _datastream(place: Place, _broker: Broker | None) -> Iterator[Workload]:
    from cdc_platform_tests.support.datastream.workload import KeyedFiles

    yield KeyedFiles(place)


@contextmanager
def _datastream_keyless(place: Place, _broker: Broker | None) -> Iterator[Workload]:
    from cdc_platform_tests.support.datastream.workload import KeylessFiles

    yield KeylessFiles(place)


def _debezium(strategy: Strategy, *, from_kafka: bool) -> WorkloadOpener:
    @contextmanager
    def open_workload(place: Place, broker: Broker | None) -> Iterator[Workload]:
        from cdc_platform_tests.support.debezium.workload import Files, Sessions, Topics

        if from_kafka:
            assert broker is not None, "topics need a broker"
            yield Sessions(place, strategy, Topics(broker, place.name))
        else:
            yield Sessions(place, strategy, Files(place.folder))

    return open_workload


KAFKA: Final = "_kafka"
WORKLOADS: Final[Mapping[str, WorkloadOpener]] = {
    "spanner": _spanner,
    "datastream_history": _datastream,
    "datastream_keyless": _datastream_keyless,
    **{
        f"debezium_{strategy.value}{end}": _debezium(strategy, from_kafka=end == KAFKA)
        for end in ("_files", KAFKA)
        for strategy in Strategy
    },
}
"""By name: each source with what it can be read from; one that ends in `_kafka` needs a broker."""


def needs_broker(name: str) -> bool:
    """Return whether a workload reads topics."""
    return name.endswith(KAFKA)


def stored_rows(pipeline: Pipeline, table: str, columns: Iterable[str]) -> Rows:
    """Return the living rows of a table of the lake by some columns."""
    names = tuple(columns)
    return Counter(
        tuple(row.get(name) for name in names) for row in rows_of(pipeline, table) if not row.get(DELETED)
    )


def describe_difference(table: str, expected: Rows, actual: Rows) -> list[str]:
    """Return a sentence if the rows of a table are not as expected."""
    if expected == actual:
        return []
    missing, extra = expected - actual, actual - expected
    lacks = f"lacks {missing.total()} of {expected.total()} rows, such as {[*missing][:SHOWN_ROWS]}"
    has = f"has {extra.total()} that it should not have, such as {[*extra][:SHOWN_ROWS]}"
    return [f"`{table}` {lacks}, and {has}"]
