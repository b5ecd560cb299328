"""Some cycles of each source leave nothing behind; `python -m benchmarks.soak` runs a thousand of them."""

import itertools
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform_tests.servers.kafka import Broker
from cdc_platform_tests.support.cycles import failed_checks
from cdc_platform_tests.support.datastream.workload import AllFiles
from cdc_platform_tests.support.footprints.soak import Soak
from cdc_platform_tests.support.workloads.workload import WORKLOADS, Place, needs_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CYCLES: Final = 4
WARM_UP: Final = 2
"""After these cycles a pipeline has read, logged and merged by either way."""
pytestmark = pytest.mark.long

CHANGES: Final = 30
EXECUTIONS_MAX: Final = 30
"""Spark forgets a few of its past queries late."""
MORE_HANDLES: Final = 5
HANDLES_PER_WORKER: Final = 3
"""Of Java: Spark starts Python workers as tasks need them, and ends those that are idle."""
MORE_THREADS: Final = 8
FILES: Final = "datastream"
"""One pipeline of all tables of Datastream's workloads."""
BY_TURNS: Final = frozenset({"spanner", FILES, "debezium_enrich_files"})
"""Every other of their cycles leaves reading and merging to Spark, which holds frames while it writes."""
SHORT: Final = (*sorted(BY_TURNS), "debezium_omit_kafka")
"""Topics with a strategy that leaves completing to the merge, files with one that completes the log."""

_serial: Final = itertools.count(1)


def count_persisted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows with each frame that is cached."""
    from pyspark.sql.classic.dataframe import DataFrame

    persist, persisted = DataFrame.persist, list[str]()

    def counted(frame: DataFrame, *arguments: Any) -> Any:
        persisted.append(",".join(frame.columns))
        return persist(frame, *arguments)

    monkeypatch.setattr(DataFrame, "persist", counted)
    return persisted


@pytest.mark.integration
@pytest.mark.parametrize("name", SHORT)
def test_cycles_leave_nothing_behind(
    spark: "SparkSession",
    session_lake: LakeSettings,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """Spark keeps no plan, no RDD and few past queries; threads and handles stay; tables are right."""
    takes_turns = name in BY_TURNS
    broker: Broker | None = None
    if needs_broker(name):
        broker = request.getfixturevalue("kafka")
    # What other tests have left there is not asked about here.
    spark.catalog.clearCache()
    persisted = count_persisted(monkeypatch)
    place = Place(tmp_path / "in", session_lake, f"soak_{next(_serial)}", CHANGES, has_histories=True)
    opened = nullcontext(AllFiles(place)) if name == FILES else WORKLOADS[name](place, broker)
    with opened as workload:
        soak = Soak(workload, spark, takes_turns=takes_turns)
        footprints = [cycle.footprint for cycle in soak.run(CYCLES)]
        faults = [*soak.differences(), *failed_checks(soak.pipeline, spark, "histories_sound").values()]
        soak.close()
    left = {
        number: footprint.cached_plans
        for number, footprint in enumerate(footprints, 1)
        if footprint.cached_plans
    }
    assert left == {}, "entries of Spark's cache manager after cycles"
    assert {footprint.persisted_rdds for footprint in footprints} == {0}
    assert len(persisted) >= CYCLES // 2 or not takes_turns
    assert faults == []
    warm, last = footprints[WARM_UP - 1], footprints[-1]
    assert last.executions <= EXECUTIONS_MAX
    assert warm.allocators == last.allocators
    assert last.python_handles - warm.python_handles <= MORE_HANDLES
    more_workers = max(0, last.workers - warm.workers)
    assert last.java_handles - warm.java_handles <= MORE_HANDLES + HANDLES_PER_WORKER * more_workers
    assert last.python_threads - warm.python_threads <= MORE_THREADS
    assert last.java_threads - warm.java_threads <= MORE_THREADS
