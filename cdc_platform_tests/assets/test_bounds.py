"""What a run logs in Dagster is bounded, for any number of tables and partitions of a pipeline."""

import time
from collections.abc import Iterator
from itertools import takewhile
from typing import Final, cast

import dagster as dg
import pytest

from cdc_platform.assets.cut import FRESHNESS_EVERY_S, RESULTS_A_REPORT, _Following
from cdc_platform.assets.data_versions import DataVersions
from cdc_platform.assets.events import MOST_PARTITIONS, cycle_events
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.metadata import SHOWN_TABLES, describe_cut
from cdc_platform.model.stream.lineage import Lineage, Partition, PartitionState
from cdc_platform.model.stream.read_windows import WindowOutcome, WindowReport
from cdc_platform.model.stream.source_capabilities import CHANGE_STREAM
from cdc_platform.pipeline.cycle import CycleOutcome
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import OrderOutcome
from cdc_platform.pipeline.reading.read import ReadOutcome
from cdc_platform.sensors import Running

START: Final = 1_800_000_000_000_000
ASSETS: Final = PipelineAssets("bank", ("accounts",))
TOKENS: Final = tuple(f"p{number:03}" for number in range(2 * MOST_PARTITIONS + 1))


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance in memory."""
    with dg.DagsterInstance.ephemeral() as dagster:
        yield dagster


def lineage_of(*tokens: str) -> Lineage:
    """Return a lineage of live partitions."""
    state = PartitionState.RUNNING
    return Lineage({token: Partition(token, ("r",), state, START, START, 1) for token in tokens}, cycle=3)


def logged_partitions(instance: dg.DagsterInstance, tokens: tuple[str, ...], cycle: int) -> list[str | None]:
    """Return the partitions of which a cycle that has read them all is logged as a materialisation."""
    windows = tuple(WindowReport(token, START, START + 1, WindowOutcome.COMPLETE) for token in tokens)
    read = ReadOutcome(cycle, windows, {}, committed=True, clock_micros=START, planned_end_micros=START + 1)
    outcome = CycleOutcome(read, OrderOutcome(cycle, START, 0, 0, 0), (), None, {})
    events = cycle_events(
        DataVersions(ASSETS, instance), cast("Pipeline", None), outcome, lineage_of(*tokens)
    )
    raw = takewhile(lambda event: event.asset_key == ASSETS.raw, events)
    return [event.partition for event in raw]


def test_partitions_are_logged_by_turns(instance: dg.DagsterInstance) -> None:
    """A cycle of many partitions is logged for some of them, and in a few cycles for each of them once."""
    logged = [logged_partitions(instance, TOKENS, cycle) for cycle in (7, 8, 9)]
    assert max(map(len, logged)) <= MOST_PARTITIONS
    expected = sorted(partition.key for partition in lineage_of(*TOKENS).partitions.values())
    assert expected == sorted(key or "" for keys in logged for key in keys)


def test_few_partitions_are_logged_in_each_cycle(instance: dg.DagsterInstance) -> None:
    """As many as Dagster takes without growing are all there."""
    tokens = TOKENS[:MOST_PARTITIONS]
    assert [len(logged_partitions(instance, tokens, cycle)) for cycle in (7, 8)] == [MOST_PARTITIONS] * 2


@pytest.mark.parametrize("more", [0, 1])
def test_a_cut_shows_a_part_of_many_tables(more: int) -> None:
    """Its first tables are listed, and how many there are is said where that is not all of them."""
    names = [f"t{number:03}" for number in range(SHOWN_TABLES + more)]
    described = describe_cut(Cut(1, START, 1, dict.fromkeys(names, 5), START), CHANGE_STREAM)
    assert names[:SHOWN_TABLES] == [record.data["table"] for record in described["Tables"].records]
    assert (len(names) if more else None) == described.get("Tables in the cut")


@pytest.mark.parametrize(
    ("tables", "factor"), [(1, 1.0), (RESULTS_A_REPORT, 1.0), (10 * RESULTS_A_REPORT, 10.0)]
)
def test_freshness_of_many_tables_is_reported_less_often(
    tables: int, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run reports each table's freshness every minute, and at most so many results a minute."""
    due_s = FRESHNESS_EVERY_S * factor
    moments = iter((due_s - 1, due_s, due_s, due_s + 1))
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    following = _Following(3600.0, Running(), tables, reported_at=0.0)
    assert [following.is_freshness_due() for _ in range(3)] == [False, True, False]
