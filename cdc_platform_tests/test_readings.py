"""Reader, lineage and log together, over simulated streams: what may go wrong loses and doubles nothing."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.errors import RetentionExpired
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.control import load_lineage, save_lineage
from cdc_platform.model.stream.lineage import PartitionState, live
from cdc_platform.model.stream.read_windows import ReadWindow, WindowOutcome
from cdc_platform.pipeline.checks.lineage_checks import find_violations
from cdc_platform.simulator.wire.simulator_settings import (
    PASSING_FAULTS,
    Dialect,
    Fault,
    PartitionMode,
    SimulatorSettings,
)
from cdc_platform.sources.spanner.stream.window_reader import read_window
from cdc_platform_tests.simulator.histories import ORIGIN, SECOND, Simulated
from cdc_platform_tests.simulator.in_process import SILENCE_S, InProcessClient, Reading, churning, reading
from cdc_platform_tests.simulator.traffics import traffics
from cdc_platform_tests.strategies import share_of_profile

every_dialect = pytest.mark.parametrize("dialect", list(Dialect))
every_mode = pytest.mark.parametrize("mode", list(PartitionMode))


def demand(reading: Reading, fault: Fault, times: int, token: str, after_rows: int = 1) -> None:
    """Let a fault befall the next queries of a partition."""
    reading.database.database.faults.demand(fault, times, token, after_rows)


def begun(seconds: float = 0.5, **chosen: Any) -> tuple[Reading, str]:
    """Return a reader that has read some time, and a partition that is busy and lives on."""
    settings = {"partition_life_s": 60.0, "partitions": 3} | chosen
    actual = reading(churning(**settings))
    actual.database.now_micros = ORIGIN + int(seconds * SECOND)
    actual.catch_up()
    return actual, next(token for token, partition in actual.lineage.partitions.items() if partition.is_live)


@given(traffics())
@share_of_profile(0.5)
def test_every_watermark_equals_the_history(traffic: tuple[SimulatorSettings, tuple[float, ...]]) -> None:
    """At each cycle's watermark the log is the true history up to there, for any churn and faults."""
    chosen, pauses_s = traffic
    # Between the two lengths of a stall; one that is only a busy machine's does no harm here.
    actual = reading(Simulated(chosen, ORIGIN), stuck_after_s=0.15)
    for number, pause_s in enumerate(pauses_s):
        actual.database.now_micros += int(pause_s * SECOND)
        before = actual.watermark_micros
        if number % 2:
            actual.follow()
        else:
            actual.cycle()
        assert before <= actual.watermark_micros
        assert find_violations(actual.lineage) == []
        assert actual.truth() == actual.log
    actual.catch_up()
    assert actual.truth() == actual.log
    assert actual.waiting == {}


@given(traffics(), st.data())
@share_of_profile(0.3)
def test_a_partition_that_lags_holds_the_log_back(
    traffic: tuple[SimulatorSettings, tuple[float, ...]], data: st.DataObject
) -> None:
    """For any choice of partitions to read, the log is whole transactions in commit order.

    So a key that moves from a partition which lags to one which does not keeps its order.
    """
    chosen, pauses_s = traffic
    actual = reading(Simulated(chosen, ORIGIN), stuck_after_s=0.15)
    for pause_s in pauses_s:
        actual.database.now_micros += int(pause_s * SECOND)
        for _ in range(2):
            before, readable = actual.watermark_micros, sorted(p.token for p in live(actual.lineage))
            actual.cycle(skipped=data.draw(st.sampled_from(readable)) if actual.lineage.cycle else None)
            assert before <= actual.watermark_micros
            assert find_violations(actual.lineage) == []
            assert actual.truth() == actual.log
    actual.catch_up()
    assert actual.truth() == actual.log


@every_mode
def test_windows_that_meet_on_a_record_give_it_once(mode: PartitionMode) -> None:
    """ReadWindows that end exactly at a commit, or next to it, leave no gap and repeat nothing."""
    whole = reading(churning(partition_mode=mode))
    whole.catch_up()
    commits = [commit for commit, _, _ in whole.log]
    actual, counts = reading(churning(partition_mode=mode)), Counter[tuple[Any, ...]]()
    for number, commit in enumerate(commits[::5]):
        actual.database.now_micros = max(actual.database.now_micros if number else 0, commit + number % 3)
        for report in actual.cycle():
            counts[report.token, report.start_exclusive_micros] += 1
    actual.database.now_micros = whole.database.now_micros
    actual.catch_up()
    assert whole.log == actual.log
    assert {1} == set(counts.values())


@every_mode
def test_generations_that_passed_while_nobody_read(mode: PartitionMode) -> None:
    """A reader that comes back after many generations of partitions follows them all, in one go."""
    actual = reading(churning(partition_life_s=0.3, partition_mode=mode))
    actual.database.now_micros = ORIGIN + 1
    actual.cycle()
    actual.database.now_micros = ORIGIN + 3 * SECOND
    actual.catch_up()
    parents = {token: partition.parent_tokens for token, partition in actual.lineage.partitions.items()}
    depth: dict[str, int] = {"": 0}
    for token, found_parents in parents.items():
        depth[token] = 1 + max((depth[parent] for parent in found_parents), default=-1)
    assert max(depth.values()) > 3
    assert actual.truth() == actual.log
    assert find_violations(actual.lineage) == []


@every_mode
@every_dialect
def test_one_read_follows_all_generations(dialect: Dialect, mode: PartitionMode) -> None:
    """Partitions split, merge and move a dozen times, and one cycle reaches the clock."""
    actual = reading(churning(partition_life_s=0.3, dialect=dialect, partition_mode=mode))
    actual.database.now_micros = ORIGIN + 6 * SECOND
    reports = actual.follow()
    assert actual.database.now_micros - 1 == actual.watermark_micros
    assert len(reports) == len({report.token for report in reports}) > 30
    assert find_violations(actual.lineage) == []
    assert actual.truth() == actual.log
    assert actual.waiting == {}


def test_a_child_that_starts_where_the_window_ends() -> None:
    """A child is read from its partition's end, whether that is before, at or after the window's end."""
    whole = reading(churning())
    whole.catch_up()
    starts = sorted({partition.start_micros for partition in whole.lineage.partitions.values()} - {ORIGIN})
    assert len(starts) > 3
    for number, start in enumerate(starts[:6]):
        actual = reading(churning())
        actual.database.now_micros = start + number % 3
        actual.cycle()
        actual.catch_up()
        actual.database.now_micros = whole.database.now_micros
        actual.catch_up()
        assert whole.log == actual.log


def test_a_restart_between_two_announcements_starts_the_child_once(tmp_path: Path) -> None:
    """One parent of a merge has announced the child, the other runs on, and all memory is lost."""
    whole = reading(churning())
    whole.catch_up()
    merged = next(actual for actual in whole.lineage.partitions.values() if len(actual.parent_tokens) > 1)
    actual = reading(churning())
    actual.database.now_micros = merged.start_micros - 1
    actual.catch_up()
    actual.database.now_micros = merged.start_micros + 2
    actual.cycle(skipped=merged.parent_tokens[1])
    assert PartitionState.CREATED is actual.lineage.partitions[merged.token].state

    lake = Lake(LakeSettings(str(tmp_path)), "restarted")
    save_lineage(lake, actual.lineage)
    loaded = load_lineage(lake)
    assert loaded is not None
    actual.lineage, actual.client = loaded, InProcessClient(actual.database)
    actual.cycle()
    assert PartitionState.SCHEDULED is actual.lineage.partitions[merged.token].state
    actual.database.now_micros = whole.database.now_micros
    actual.catch_up()
    assert whole.log == actual.log
    assert find_violations(actual.lineage) == []


@every_mode
@every_dialect
def test_a_stalled_partition_is_asked_again_once(dialect: Dialect, mode: PartitionMode) -> None:
    """A query that goes silent is replaced by a fresh one, which continues where the first one was."""
    queries = []
    for stalls in (0, 1):
        reading, token = begun(dialect=dialect, stall_s=60.0, partition_mode=mode)
        demand(reading, Fault.STALLED, stalls, token)
        reading.database.now_micros = ORIGIN + 3 * SECOND
        assert {WindowOutcome.COMPLETE} == {report.outcome for report in reading.cycle()}
        assert reading.truth() == reading.log
        queries.append(reading.client.requests[token])
    assert queries[0] + 1 == queries[1]


@every_mode
def test_a_partition_that_stays_silent_holds_the_watermark(mode: PartitionMode) -> None:
    """It is left after two queries, and the others are read; the next cycle reads on where it stands."""
    reading, token = begun(stall_s=60.0, partition_mode=mode)
    demand(reading, Fault.STALLED, 2, token)
    queries, position = reading.client.requests[token], reading.lineage.partitions[token].position_micros
    reading.database.now_micros = ORIGIN + 3 * SECOND
    reports = {report.token: report for report in reading.cycle()}
    assert queries + 2 == reading.client.requests[token]
    assert [token] == [report.token for report in reports.values() if report.is_silent]
    assert f"has sent neither records nor heartbeats for {SILENCE_S} s" in str(reports[token].error)
    assert position <= reading.watermark_micros < ORIGIN + SECOND
    assert reading.truth() == reading.log
    assert reading.waiting
    reading.cycle()
    assert reading.database.now_micros - 1 == reading.watermark_micros
    assert reading.truth() == reading.log


@every_mode
@every_dialect
def test_lost_retention_is_an_error_that_stays(dialect: Dialect, mode: PartitionMode) -> None:
    """A partition whose records are gone is not skipped: every cycle says so, and what there is to choose."""
    reading, token = begun(dialect=dialect, partition_mode=mode)
    demand(reading, Fault.EXPIRED, 1, token)
    reading.database.now_micros = ORIGIN + 3 * SECOND
    position = reading.lineage.partitions[token].position_micros
    for _ in range(3):
        report = next(report for report in reading.cycle() if report.token == token)
        assert WindowOutcome.INTERRUPTED is report.outcome
        assert RetentionExpired.__name__ == report.error_name
        assert "begin a new lake" in str(report.error)
        assert "`start_timestamp`" in str(report.error)
        assert position == report.end_inclusive_micros == reading.watermark_micros
    assert reading.truth() == reading.log


@every_mode
def test_faults_befall_the_readings(mode: PartitionMode) -> None:
    """The faults that the seeds deal really come: each of them has hit some query."""
    incidents = Counter[Fault]()
    for seed in range(12):
        if set(incidents) == set(PASSING_FAULTS):
            break
        chosen: dict[str, Any] = {"faults": PASSING_FAULTS, "fault_probability": 0.5, "stall_s": 0.01}
        database = churning(seed=seed, partition_mode=mode, **chosen)
        actual = reading(database)
        actual.catch_up()
        incidents += Counter(database.database.faults.incidents)
    assert set(incidents) == set(PASSING_FAULTS)


def test_the_first_query_never_returns_data() -> None:
    """Data in the answer of the query without a token would belong to no partition, so it is an error."""
    reading, token = begun()
    root = ReadWindow("", ORIGIN - 1, ORIGIN + SECOND)
    service = reading.client.service
    answer = service.execute_streaming_sql

    def swapped(request: Any, is_over: Any) -> Any:
        request.params.fields["partition_token"].string_value = token
        return answer(request, is_over)

    service.execute_streaming_sql = swapped  # type: ignore[method-assign] # plays a server that errs
    (report,) = [
        row["read_window"]
        for batch in read_window(reading.client, 1, root)
        for row in batch.to_pylist()
        if row["read_window"]
    ]
    assert report["error"].startswith("RecordUnreadable: The initial query")
    assert report["outcome"] == WindowOutcome.INTERRUPTED
