"""What a run logs in Dagster is bounded, for any number of tables and partitions of a pipeline."""

import time
from typing import Final

import dagster as dg
import pytest

from cdc_platform.assets.cut import _FreshnessReports
from cdc_platform.assets.events import MAX_PARTITIONS, STATES_EVERY_S, LoggedStates
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.checks.freshness import REPORT_EVERY_S, RESULTS_A_REPORT
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.metadata import SHOWN_TABLES, describe_cut
from cdc_platform.model.stream.lineage import Lineage, Partition, PartitionState
from cdc_platform.model.stream.read_windows import WindowOutcome, WindowReport

START: Final = 1_800_000_000_000_000
ASSETS: Final = PipelineAssets("bank", ("accounts",))
TOKENS: Final = tuple(f"p{number:03}" for number in range(2 * MAX_PARTITIONS + 1))


def lineage_of(*tokens: str) -> Lineage:
    """Return a lineage of live partitions."""
    state = PartitionState.RUNNING
    return Lineage({token: Partition(token, ("r",), state, START, START, 1) for token in tokens}, cycle=3)


def windows_of(
    tokens: tuple[str, ...], outcome: WindowOutcome = WindowOutcome.COMPLETE
) -> tuple[WindowReport, ...]:
    """Return the windows of a cycle that has read all these partitions."""
    return tuple(WindowReport(token, START, START + 1, outcome) for token in tokens)


def logged_windows(logged: LoggedStates, windows: tuple[WindowReport, ...]) -> list[str]:
    """Return the partitions that a run logs for a cycle with these windows."""
    logged.begin_cycle()
    lineage = lineage_of(*(window.token for window in windows))
    return [window.token for window in logged.choose_windows(windows, lineage)]


def test_partitions_are_logged_by_turns() -> None:
    """Reports of many partitions contain some of them each, and in a few reports each of them once."""
    logged = LoggedStates(every_s=0.0)
    tokens = [logged_windows(logged, windows_of(TOKENS)) for _ in range(3)]
    assert max(map(len, tokens)) <= MAX_PARTITIONS
    assert sorted(TOKENS) == sorted(token for report in tokens for token in report)


def test_few_partitions_are_logged_in_each_report() -> None:
    """As many as Dagster takes without growing are all there."""
    logged = LoggedStates(every_s=0.0)
    windows = windows_of(TOKENS[:MAX_PARTITIONS])
    assert [len(logged_windows(logged, windows)) for _ in range(2)] == [MAX_PARTITIONS] * 2


def test_a_partition_is_logged_when_its_outcome_changes_or_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new partition and a failed read are logged at once, unchanged ones only when they are due."""
    moments = iter((1.0, 2.0, 3.0, STATES_EVERY_S, STATES_EVERY_S + 1))
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    logged, old = LoggedStates(logged_at=0.0), windows_of(("a", "b"))
    failed = (*windows_of(("a",)), *windows_of(("b",), WindowOutcome.INTERRUPTED))
    cycles = (old, (*old, *windows_of(("c",))), failed, failed, failed)
    expected = [["a", "b"], ["c"], ["b"], ["a", "b"], []]
    assert expected == [logged_windows(logged, windows) for windows in cycles]


def test_the_lineage_is_logged_when_a_partition_changes_or_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its picture, of some 20 KB, is not repeated while the partitions only move on."""
    moments = iter((1.0, 2.0, 3.0, STATES_EVERY_S))
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    logged, is_logged = LoggedStates(logged_at=0.0), list[bool]()
    for tokens in (("a",), ("a",), ("a", "b"), ("a", "b")):
        logged.begin_cycle()
        is_logged.append(logged.is_lineage_wanted(lineage_of(*tokens)))
    assert is_logged == [True, False, True, True]


@pytest.mark.parametrize("more", [0, 1])
def test_a_cut_shows_a_part_of_many_tables(more: int) -> None:
    """Its first tables are listed, and how many there are is said where that is not all of them."""
    names = [f"t{number:03}" for number in range(SHOWN_TABLES + more)]
    cut = Cut(1, START, 1, dict.fromkeys(names, 5), START)
    described = describe_cut(cut, None, delivers_events=False)
    assert names[:SHOWN_TABLES] == [record.data["table"] for record in described["Tables"].records]
    assert (len(names) if more else None) == described.get("Tables in the cut")


@pytest.mark.parametrize(
    ("tables", "factor"), [(1, 1.0), (RESULTS_A_REPORT, 1.0), (10 * RESULTS_A_REPORT, 10.0)]
)
def test_freshness_is_reported_when_it_changes_or_at_an_interval(
    tables: int, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run reports each table's freshness at once when a result changes, and less often for many tables."""
    due_s = REPORT_EVERY_S * factor
    moments = iter((0.0, 1.0, 2.0, 3.0, due_s + 1, due_s + 2))
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    reports, key = _FreshnessReports(), ASSETS.table("accounts")
    results = (True, True, False, False, False)
    passed = [[dg.AssetCheckEvaluation(key, "fresh", passed=passed)] * tables for passed in results]
    assert [len(reports.choose(evaluations)) for evaluations in passed] == [tables, 0, tables, 0, 0]
    monkeypatch.setattr(time, "monotonic", lambda: due_s + 2)
    assert len(reports.choose(passed[-1])) == tables
